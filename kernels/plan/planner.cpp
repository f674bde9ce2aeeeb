#include "kernels/plan/planner.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/precision.hpp"

#include <algorithm>

namespace troupe {

planner::planner(plan& result, const graph& source, const plan_options& options)
  : plan_(result), source_(source), options_(options) {
  plan_.graph_ = source;
  plan_.max_rows_ = options.max_rows;
  plan_.gradients_ = options.gradients;
  plan_.precision_ = options.precision;
}

void planner::run() {
  choose_targets();
  lower();
  if (options_.gradients)
    differentiate();
  mark_needed();
  find_row_sparse();
  copy_shared_gradients();
  emit_steps();
  place_leaves();
  place_values();
  write_instructions();
  if (options_.gradients)
    make_buckets();
}

std::uint32_t planner::root(std::uint32_t id) const {
  while (traits_of(at(id).op).kind == operation_kind::view)
    id = at(id).inputs[0];
  return id;
}

// -- what is needed

std::uint32_t planner::check(const char* what, expression x) const {
  if (!x.valid() || &x.owner() != &source_)
    throw input_error(std::string("plan: the ") + what + " does not belong to the planned graph");
  return x.id();
}

void planner::choose_targets() {
  if (options_.max_rows == 0)
    throw input_error("plan: max_rows is 0; expected at least 1");
  if (options_.loss.valid()) {
    loss_ = check("loss", options_.loss);
    if (!at(loss_).shape.extents().empty())
      throw input_error("plan: the loss \"" + at(loss_).name + "\" has shape "
                        + to_string(at(loss_).shape) + "; expected a scalar");
  } else if (options_.gradients) {
    throw input_error("plan: gradients need a loss");
  }
  if (options_.correct.valid()) {
    correct_ = check("number of correct samples", options_.correct);
    if (!traits_of(at(correct_).op).counts_correct)
      throw input_error("plan: \"" + at(correct_).name
                        + "\" is not a result of softmax_correct or binary_correct");
  }
  for (auto x : options_.fetches) {
    fetches_.push_back(check("fetch", x));
    if (const auto type = x.node().type; type == dtype::int32 || type == dtype::sparse)
      throw input_error(
        "plan: the fetch \"" + x.name() + "\" " + troupe::to_string(x.shape()) + " is "
        + std::string(troupe::to_string(type))
        + "; only floating-point numbers can be fetched (to_float makes them of int32)");
  }
}

/// Changes the plan's copy of the graph to the precision of the plan, and casts the loss and the
/// fetches to float32.
void planner::lower() {
  if (is_narrow(options_.precision)) {
    std::vector<std::uint32_t> ids;
    plan_.graph_ = lower_precision(source_, options_.precision, ids);
    for (auto* id : {&loss_, &correct_})
      if (*id != none)
        *id = ids[*id];
    for (auto& id : fetches_)
      id = ids[id];
  }
  if (loss_ != none)
    loss_ = in_full(loss_);
  for (auto& id : fetches_)
    id = in_full(id);
}

/// Returns a node with the value of `id` in float32: a cast of `id` if it has 16 bits, otherwise
/// `id` itself.
std::uint32_t planner::in_full(std::uint32_t id) {
  return is_narrow(at(id).type) ? plan_.graph_.casted({plan_.graph_, id}, dtype::float32).id() : id;
}

void planner::differentiate() {
  auto& g = plan_.graph_;
  std::vector<expression> variables;
  std::vector<std::size_t> entries;
  for (std::uint32_t id = 0; id <= loss_; ++id) {
    const auto& n = at(id);
    if (n.op != operation::variable
        || g.parameters().entries()[n.index].kind != parameter_kind::trainable)
      continue;
    variables.emplace_back(g, id);
    entries.push_back(n.index);
  }
  expression scale;
  if (options_.scale_loss) {
    plan_.loss_scale_feed_ = g.placeholders().size();
    scale = g.placeholder("loss_scale", {});
  }
  const auto leaves = g.nodes().size();
  const auto results = gradients({g, loss_}, variables, scale);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& n = results[i].node();
    // If the result is a newly created constant 0, the loss does not depend on the variable.
    const bool independent = results[i].id() >= leaves && n.op == operation::constant
      && n.values == std::vector<double>{0};
    if (!independent)
      parameter_gradients_.emplace_back(in_full(results[i].id()), entries[i]);
  }
  for (const auto& [variable, sum] : g.state_updates())
    parameter_gradients_.emplace_back(in_full(sum), at(variable).index);
}

void planner::mark_needed() {
  const auto n = plan_.graph_.nodes().size();
  needed_.assign(n, false);
  kept_.assign(n, false);
  users_.assign(n, {});
  auto keep = [&](std::uint32_t id) {
    if (id != none)
      needed_[id] = kept_[id] = kept_[root(id)] = true;
  };
  keep(loss_);
  keep(correct_);
  for (auto id : fetches_)
    keep(id);
  for (const auto& [id, entry] : parameter_gradients_)
    needed_[id] = true;
  for (auto id = static_cast<std::uint32_t>(n); id-- > 0;) {
    if (!needed_[id])
      continue;
    for (auto input : at(id).inputs) {
      needed_[input] = true;
      users_[input].push_back(id);
    }
  }
}

/// True if the run reads only some rows of this parameter, selected by a feed.
bool planner::reads_rows_alone(std::size_t entry) const {
  const auto is_parameter = [&](std::uint32_t id) {
    return at(id).op == operation::variable && at(id).index == entry;
  };
  for (std::uint32_t id = 0; id < needed_.size(); ++id) {
    const bool all_rows = traits_of(at(id).op).names_read_rows == operation_traits::none;
    if (needed_[id] && all_rows && std::ranges::any_of(at(id).inputs, is_parameter))
      return false;
  }
  return std::ranges::none_of(fetches_, is_parameter);
}

void planner::find_row_sparse() {
  for (const auto& [id, entry] : parameter_gradients_) {
    const auto input = traits_of(at(id).op).names_written_rows;
    if (input == operation_traits::none)
      continue;
    const auto& names_rows = at(at(id).inputs[input]);
    if (names_rows.op == operation::placeholder && reads_rows_alone(entry))
      plan_.row_sparse_.push_back({entry, names_rows.index});
  }
}

/// Usually, the step that computes the gradient of a parameter writes it directly to its place in
/// the flat gradient. If the value has another use (in another step, for another parameter or for
/// the caller), or if no step writes it, this function adds a step that copies it to the flat
/// gradient (a scale by 1). No instruction reads the flat gradient, because the caller may change a
/// bucket as soon as the bucket is ready.
void planner::copy_shared_gradients() {
  std::vector<std::size_t> roles(needed_.size());
  for (const auto& [id, entry] : parameter_gradients_)
    ++roles[id];
  for (auto& [id, entry] : parameter_gradients_) {
    if (roles[id] == 1 && users_[id].empty() && !kept_[id] && !at(id).inputs.empty()
        && root(id) == id)
      continue;
    const auto copy = scale({plan_.graph_, id}, 1).id();
    users_[id].push_back(copy);
    users_.emplace_back();
    needed_.push_back(true);
    kept_.push_back(false);
    id = copy;
  }
}

} // namespace troupe
