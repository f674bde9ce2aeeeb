// The middle part of the planner: decides which nodes one step computes together.

#include "kernels/plan/planner.hpp"

#include "kernels/graph/operation_traits.hpp"

#include <algorithm>

namespace troupe {

namespace {

bool is_softmax_loss(operation op) {
  return traits_of(op).kind == operation_kind::softmax_loss;
}

bool is_attention(operation op) {
  return traits_of(op).kind == operation_kind::attention;
}

} // namespace

/// Returns the only node that reads `id`. Returns none if several nodes read it, or if its value is
/// needed for another purpose (as a result of the plan or the gradient of a parameter).
std::uint32_t planner::sole_user(std::uint32_t id) const {
  const bool is_gradient =
    std::ranges::any_of(parameter_gradients_, [id](const auto& x) { return x.first == id; });
  return users_[id].size() == 1 && !kept_[id] && !is_gradient ? users_[id][0] : none;
}

void planner::emit_steps() {
  emitted_.assign(needed_.size(), false);
  for (std::uint32_t id = 0; id < needed_.size(); ++id)
    if (needed_[id] && fuses(at(id).op).takes_epilogue)
      fuse_product(id);
  choose_chains();
  for (std::uint32_t id = 0; id < needed_.size(); ++id) {
    if (!needed_[id])
      continue;
    if (!at(id).inputs.empty() && !emitted_[id] && root(id) == id)
      emit(id);
  }
}

void planner::emit(std::uint32_t id) {
  const auto& n = at(id);
  if (is_softmax_loss(n.op)) {
    emit_softmax(id);
    return;
  }
  if (is_attention(n.op)) {
    emit_attention(id);
    return;
  }
  if (chained_[id])
    return; // the step of its reader computes it
  if (auto i = fused_.find(id); i != fused_.end()) {
    steps_.push_back(std::move(i->second));
    return;
  }
  if (is_elementwise(id) && std::ranges::any_of(n.inputs, [&](auto i) { return chained_[i]; })) {
    steps_.push_back(chain_ending_at(id));
    return;
  }
  step s;
  s.op = n.op;
  s.inputs = n.inputs;
  s.output = s.source = id;
  steps_.push_back(std::move(s));
}

/// Fuses a product, such as matmul, with the bias and with the activation (or derivative of an
/// activation, or sum) that follow it. Each of these nodes must be the only node that reads the
/// result of the node before it.
void planner::fuse_product(std::uint32_t id) {
  step s;
  s.op = at(id).op;
  s.inputs = at(id).inputs;
  s.source = id;
  auto last = id;
  auto next = sole_user(last);
  if (next != none && at(next).op == fuses(s.op).bias && at(next).inputs[0] == last) {
    s.bias = at(next).inputs[1];
    last = next;
    next = sole_user(last);
  }
  // A sum of two products is the epilogue of only one of them.
  if (next != none && fuses(at(next).op).is_epilogue && !fused_.contains(next)) {
    const auto& inputs = at(next).inputs;
    const auto other = inputs[0] != last ? inputs[0] : inputs.size() > 1 ? inputs[1] : none;
    if (inputs[0] == last || at(next).op == operation::add) { // sums commute
      s.after = at(next).op;
      s.epilogue_operand = other;
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

/// Emits one step for all softmax losses with the same inputs and the same settings for labels. The
/// step computes loss, gradient and number of correct samples in one pass over the logits.
void planner::emit_softmax(std::uint32_t id) {
  step s;
  s.op = operation::softmax_cross_entropy;
  s.source = id;
  s.inputs = at(id).inputs;
  for (auto other = id; other < needed_.size(); ++other) {
    if (!needed_[other] || emitted_[other] || !is_softmax_loss(at(other).op)
        || at(other).inputs != s.inputs || at(other).labels != at(id).labels)
      continue;
    auto& result = at(other).op == operation::softmax_cross_entropy ? s.output
      : at(other).op == operation::softmax_correct                  ? s.correct
                                                                    : s.gradient;
    if (result != none)
      continue; // another node with the same result gets its own step
    result = other;
    emitted_[other] = true;
  }
  steps_.push_back(std::move(s));
}

/// Emits one step for attention and its statistics, or one step for the gradients of all operands
/// of attention.
void planner::emit_attention(std::uint32_t id) {
  const auto is_gradient = [&](std::uint32_t x) {
    return at(x).op == operation::attention_gradient;
  };
  step s;
  s.op = is_gradient(id) ? operation::attention_gradient : operation::attention;
  s.source = id;
  s.inputs = at(id).inputs;
  s.more = {none, none};
  for (auto other = id; other < needed_.size(); ++other) {
    const auto& n = at(other);
    if (!needed_[other] || emitted_[other] || !is_attention(n.op)
        || is_gradient(other) != is_gradient(id) || n.inputs != s.inputs
        || n.attention != at(id).attention || n.factor != at(id).factor)
      continue;
    const auto position = is_gradient(other) ? n.index : n.op == operation::attention ? 0 : 1;
    auto& result = position == 0 ? s.output : s.more[position - 1];
    if (result != none)
      continue; // another node with the same result gets its own step
    result = other;
    emitted_[other] = true;
  }
  steps_.push_back(std::move(s));
}

// -- chains of element-wise operations

/// Decides which element-wise nodes are chained: computed by the step of the node that reads them.
/// Values within a chain never leave the cache. A node can be chained only if it has a single
/// reader, and the reader is also element-wise and has the same shape.
void planner::choose_chains() {
  chained_.assign(needed_.size(), false);
  std::vector<std::size_t> length(needed_.size(), 0);
  for (std::uint32_t id = 0; id < needed_.size(); ++id) {
    if (!needed_[id] || !is_elementwise(id))
      continue;
    length[id] = 1;
    for (auto input : at(id).inputs)
      length[id] += chained_[input] ? length[input] : 0;
    const auto user = sole_user(id);
    chained_[id] = user != none && is_elementwise(user) && at(user).shape == at(id).shape
      && length[id] <= longest_chain;
  }
}

bool planner::is_elementwise(std::uint32_t id) const {
  return troupe::is_elementwise(at(id).op) && !emitted_[id] && !fused_.contains(id);
}

planner::step planner::chain_ending_at(std::uint32_t id) const {
  chain_builder builder{*this, {}, {}};
  builder.result.op = operation::elementwise;
  builder.result.output = builder.result.source = id;
  builder.add_inputs(id);
  builder.add(id);
  // Renumbers the temporaries, so that they follow the inputs. The number of inputs is known only
  // now.
  auto& s = builder.result;
  const auto inputs = static_cast<std::uint32_t>(s.inputs.size());
  for (auto& x : s.program)
    for (auto* number : {&x.a, &x.b, &x.c, &x.result})
      if (*number >= first_temporary)
        *number = *number - first_temporary + inputs;
  return std::move(builder.result);
}

void planner::chain_builder::add_inputs(std::uint32_t id) {
  for (auto input : owner.at(id).inputs)
    if (owner.chained_[input])
      add_inputs(input);
    else if (std::ranges::find(result.inputs, input) == result.inputs.end())
      result.inputs.push_back(input);
}

/// Appends the operations that compute `id`. Returns the number of the input or temporary that
/// holds the value. The result of an operation may overwrite a temporary that the operation reads.
std::uint32_t planner::chain_builder::add(std::uint32_t id) {
  const auto& n = owner.at(id);
  element_step x;
  x.op = n.op;
  x.factor = n.factor;
  x.a = operand_of(n.inputs[0]);
  x.b = n.inputs.size() > 1 ? operand_of(n.inputs[1]) : x.a;
  x.c = n.inputs.size() > 2 ? operand_of(n.inputs[2]) : x.a;
  for (auto number : {x.a, x.b, x.c})
    if (number >= first_temporary && std::ranges::find(free, number) == free.end())
      free.push_back(number);
  if (free.empty())
    free.push_back(first_temporary + static_cast<std::uint32_t>(result.temporaries++));
  x.result = free.back();
  free.pop_back();
  result.program.push_back(x);
  return x.result;
}

std::uint32_t planner::chain_builder::operand_of(std::uint32_t input) {
  if (owner.chained_[input])
    return add(input);
  const auto i = std::ranges::find(result.inputs, input);
  return static_cast<std::uint32_t>(i - result.inputs.begin());
}

} // namespace troupe
