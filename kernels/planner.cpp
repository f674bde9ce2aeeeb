#include "kernels/planner.hpp"

#include "kernels/error.hpp"
#include "kernels/gradients.hpp"
#include "kernels/operations.hpp"

#include <algorithm>

namespace troupe {

planner::planner(plan& result, const graph& source, const plan_options& options)
  : plan_(result), source_(source), options_(options) {
  plan_.graph_ = source;
  plan_.max_rows_ = options.max_rows;
  plan_.gradients_ = options.gradients;
}

void planner::run() {
  choose_targets();
  if (options_.gradients)
    differentiate();
  mark_needed();
  copy_shared_gradients();
  emit_steps();
  place_leaves();
  place_values();
  write_instructions();
  if (options_.gradients)
    make_buckets();
}

namespace {

bool is_leaf(operation op) {
  return op == operation::placeholder || op == operation::variable || op == operation::constant;
}

} // namespace

// -- what is needed

std::uint32_t planner::check(const char* what, expression x) const {
  if (!x.valid() || &x.owner() != &source_)
    throw input_error(std::string("plan: the ") + what + " is not of the graph that is planned");
  return x.id();
}

void planner::choose_targets() {
  if (options_.max_rows == 0)
    throw input_error("plan: max_rows is 0; at least 1 was expected");
  if (options_.loss.valid()) {
    loss_ = check("loss", options_.loss);
    if (!at(loss_).shape.extents().empty())
      throw input_error("plan: the loss \"" + at(loss_).name + "\" has shape "
                        + to_string(at(loss_).shape) + "; a scalar was expected");
  } else if (options_.gradients) {
    throw input_error("plan: gradients need a loss");
  }
  if (options_.correct.valid()) {
    correct_ = check("number of correct samples", options_.correct);
    if (at(correct_).op != operation::softmax_correct)
      throw input_error("plan: \"" + at(correct_).name + "\" is not made by softmax_correct");
  }
  for (auto x : options_.fetches)
    fetches_.push_back(check("fetch", x));
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
  const auto leaves = g.nodes().size();
  const auto results = gradients({g, loss_}, variables);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& n = results[i].node();
    // A constant 0 that was made just now: the loss does not depend on the variable.
    const bool independent = results[i].id() >= leaves && n.op == operation::constant
      && n.values == std::vector<double>{0};
    if (!independent)
      parameter_gradients_.emplace_back(results[i].id(), entries[i]);
  }
}

void planner::mark_needed() {
  const auto n = plan_.graph_.nodes().size();
  needed_.assign(n, false);
  kept_.assign(n, false);
  users_.assign(n, {});
  auto keep = [&](std::uint32_t id) {
    if (id != none)
      needed_[id] = kept_[id] = true;
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

/// The gradient of a parameter is written to its place in the flat gradient by the step that
/// computes it, unless that value is something else too: then it is copied there (a scale by 1).
/// Nothing reads the flat gradient, because the caller may change a bucket as soon as it is ready.
void planner::copy_shared_gradients() {
  std::vector<std::size_t> roles(needed_.size());
  for (const auto& [id, entry] : parameter_gradients_)
    ++roles[id];
  for (auto& [id, entry] : parameter_gradients_) {
    if (roles[id] == 1 && users_[id].empty() && !kept_[id] && !is_leaf(at(id).op))
      continue;
    const auto copy = scale({plan_.graph_, id}, 1).id();
    users_[id].push_back(copy);
    users_.emplace_back();
    needed_.push_back(true);
    kept_.push_back(false);
    id = copy;
  }
}

// -- steps

namespace {

bool is_softmax_loss(operation op) {
  return op == operation::softmax_cross_entropy || op == operation::softmax_cross_entropy_gradient
    || op == operation::softmax_correct;
}

epilogue epilogue_of(operation op) {
  switch (op) {
  case operation::relu:
    return epilogue::relu;
  case operation::tanh:
    return epilogue::tanh;
  case operation::sigmoid:
    return epilogue::sigmoid;
  case operation::relu_gradient:
    return epilogue::relu_gradient;
  case operation::tanh_gradient:
    return epilogue::tanh_gradient;
  case operation::sigmoid_gradient:
    return epilogue::sigmoid_gradient;
  default:
    return epilogue::none;
  }
}

} // namespace

/// The one node that reads `id`, or none where there are several, or somebody reads it after the
/// run.
std::uint32_t planner::sole_user(std::uint32_t id) const {
  const bool is_gradient =
    std::ranges::any_of(parameter_gradients_, [id](const auto& x) { return x.first == id; });
  return users_[id].size() == 1 && !kept_[id] && !is_gradient ? users_[id][0] : none;
}

void planner::emit_steps() {
  emitted_.assign(needed_.size(), false);
  for (std::uint32_t id = 0; id < needed_.size(); ++id) {
    if (!needed_[id])
      continue;
    if (!is_leaf(at(id).op) && !emitted_[id])
      emit(id);
  }
}

void planner::emit(std::uint32_t id) {
  const auto& n = at(id);
  if (is_softmax_loss(n.op)) {
    emit_softmax(id);
    return;
  }
  if (n.op == operation::matmul)
    fuse_matmul(id);
  if (emitted_[id])
    return; // within a fused step
  if (auto i = fused_.find(id); i != fused_.end()) {
    steps_.push_back(std::move(i->second));
    return;
  }
  step s;
  s.op = n.op;
  s.inputs = n.inputs;
  s.output = s.source = id;
  steps_.push_back(std::move(s));
}

/// matmul, + bias, activation or derivative of one: as far as each result is read by the next node
/// alone.
void planner::fuse_matmul(std::uint32_t id) {
  step s;
  s.op = operation::matmul;
  s.inputs = at(id).inputs;
  s.source = id;
  auto last = id;
  auto next = sole_user(last);
  if (next != none && at(next).op == operation::add_bias && at(next).inputs[0] == last) {
    s.bias = at(next).inputs[1];
    last = next;
    next = sole_user(last);
  }
  if (next != none && at(next).inputs[0] == last) {
    s.after = epilogue_of(at(next).op);
    if (s.after != epilogue::none) {
      s.epilogue_operand = at(next).inputs.size() > 1 ? at(next).inputs[1] : none;
      last = next;
    }
  }
  if (last == id)
    return;
  for (auto i = id; i != last; i = users_[i][0])
    emitted_[i] = true;
  s.output = last;
  fused_.emplace(last, std::move(s));
}

/// One pass over the logits makes loss, gradient and number of correct samples.
void planner::emit_softmax(std::uint32_t id) {
  step s;
  s.op = operation::softmax_cross_entropy;
  s.source = id;
  s.inputs = at(id).inputs;
  for (auto other = id; other < needed_.size(); ++other) {
    if (!needed_[other] || emitted_[other] || !is_softmax_loss(at(other).op)
        || at(other).inputs != s.inputs)
      continue;
    auto& result = at(other).op == operation::softmax_cross_entropy ? s.output
      : at(other).op == operation::softmax_correct                  ? s.correct
                                                                    : s.gradient;
    if (result != none)
      continue; // the same thing twice: a step of its own
    result = other;
    emitted_[other] = true;
  }
  steps_.push_back(std::move(s));
}

} // namespace troupe
