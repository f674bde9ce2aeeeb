#include "kernels/cpu/plan_cost.hpp"

#include "kernels/cpu/executor.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace troupe {

namespace {

std::uint64_t elements_of(const operand& x, std::size_t rows) {
  return x.exists() && x.type != dtype::sparse ? x.shape.elements(rows) : 0;
}

std::uint64_t bytes_of(const operand& x, std::size_t rows) {
  return elements_of(x, rows) * size_of(x.type);
}

/// Products that one element of a convolution's result adds up; `w`: (filters, C / groups, height,
/// width).
std::uint64_t kernel_size(const shape& w) {
  return static_cast<std::uint64_t>(w[1] * w[2] * w[3]);
}

std::uint64_t matmul_flops(const instruction& x, std::size_t rows) {
  const auto& a = x.inputs[0];
  const auto all = elements_of(a, rows);
  const auto last = static_cast<std::uint64_t>(a.shape.last());
  const auto inner = x.transpose_a ? all / std::max<std::uint64_t>(last, 1) : last;
  return 2 * inner * elements_of(x.output, rows);
}

std::uint64_t batched_flops(const instruction& x, std::size_t rows) {
  const auto& a = x.inputs[0].shape;
  const auto inner = a[a.rank() - (x.transpose_a ? 2 : 1)];
  return 2 * static_cast<std::uint64_t>(inner) * elements_of(x.output, rows);
}

/// Per time step and sample: the states times a matrix, and three operations per gate.
std::uint64_t recurrent_flops(const instruction& x, std::size_t rows, const operand& w) {
  const auto hidden = static_cast<std::uint64_t>(w.shape.last());
  const auto gates = elements_of(w, rows) / std::max<std::uint64_t>(hidden, 1);
  const auto steps = rows * static_cast<std::uint64_t>(x.output.shape[1]);
  return steps * gates * (2 * hidden + 3);
}

std::uint64_t window_size(const instruction& x) {
  return static_cast<std::uint64_t>(x.window.height * x.window.width);
}

/// Operations per element of the first input; 0 for operations that only move elements.
std::uint64_t per_input_element(operation op) {
  switch (op) {
  case operation::sum:
  case operation::sum_leading:
  case operation::sum_last:
  case operation::sum_channels:
  case operation::embedding_gradient:
  case operation::add_bias:
  case operation::add_channel_bias:
  case operation::multiply_rows:
  case operation::multiply_channels:
  case operation::dropout:
  case operation::max_pool_gradient:
  case operation::softmax_correct:
  case operation::binary_correct:
    return 1;
  case operation::normalize_channels:
    return 2;
  case operation::squared_error: // the difference, its square, the sum
    return 3;
  case operation::softmax:        // minus the maximum, exp, the sum, the quotient
  case operation::causal_softmax: // as if it were whole
  case operation::softmax_cross_entropy_gradient:
  case operation::channel_moments: // the sum; the difference, its square, their sum
    return 4;
  case operation::normalize_rows: // the moments, the difference, the product
    return 6;
  case operation::normalize_channels_gradient: // two sums, three products, three sums
    return 8;
  case operation::normalize_rows_gradient: // that, and the moments again
    return 14;
  default:
    return static_cast<std::uint64_t>(elementwise_arity(op) > 0 ? 1 : 0);
  }
}

std::uint64_t main_flops(const instruction& x, std::size_t rows) {
  switch (x.op) {
  case operation::matmul:
    return matmul_flops(x, rows);
  case operation::batched_matmul:
    return batched_flops(x, rows);
  case operation::conv2d:
    return 2 * elements_of(x.output, rows) * kernel_size(x.inputs[1].shape);
  case operation::conv2d_input_gradient:
    return 2 * elements_of(x.inputs[0], rows) * kernel_size(x.inputs[1].shape);
  case operation::conv2d_weight_gradient:
    return 2 * elements_of(x.inputs[1], rows) * kernel_size(x.output.shape);
  case operation::max_pool_select:
  case operation::average_pool:
    return elements_of(x.output, rows) * window_size(x);
  case operation::average_pool_gradient:
    return elements_of(x.inputs[0], rows) * window_size(x);
  case operation::recurrent:
    return recurrent_flops(x, rows, x.inputs[1]);
  case operation::recurrent_gradient:
    return recurrent_flops(x, rows, x.inputs[2]);
  case operation::elementwise:
    return x.program.size() * elements_of(x.output, rows);
  case operation::softmax_cross_entropy:
    return (x.gradient.exists() ? 4 : 3) * elements_of(x.inputs[0], rows);
  default:
    return x.inputs.empty() ? 0 : per_input_element(x.op) * elements_of(x.inputs[0], rows);
  }
}

/// What an instruction writes.
std::vector<const operand*> written_by(const instruction& x) {
  std::vector<const operand*> result;
  for (const auto* o : {&x.output, &x.gradient, &x.correct})
    if (o->exists())
      result.push_back(o);
  return result;
}

std::vector<const operand*> read_by(const instruction& x) {
  std::vector<const operand*> result;
  for (const auto& input : x.inputs)
    if (input.exists())
      result.push_back(&input);
  for (const auto* o : {&x.bias, &x.epilogue_operand})
    if (o->exists())
      result.push_back(o);
  return result;
}

std::uint64_t bytes_read_by(const instruction& x, std::size_t rows) {
  std::set<std::pair<operand::place, std::size_t>> seen;
  std::uint64_t result = 0;
  for (const auto* o : read_by(x))
    if (seen.emplace(o->where, o->index).second)
      result += bytes_of(*o, rows);
  // Reads only a part of the first input.
  if (x.op == operation::embedding || x.op == operation::slice)
    result -= bytes_of(x.inputs[0], rows) - bytes_of(x.output, rows);
  return result;
}

/// Values in the arena at the same time: first element, elements.
using live_values = std::map<std::size_t, std::size_t>;

void add(live_values& all, const operand& x, std::size_t rows,
         const std::set<std::size_t>& constants) {
  if (x.where != operand::place::arena || constants.contains(x.index))
    return;
  auto& size = all[x.index];
  size = std::max(size, x.shape.elements(rows));
}

std::size_t total(const live_values& all) {
  std::size_t result = 0;
  for (const auto& [begin, size] : all)
    result += size;
  return result;
}

} // namespace

instruction_cost& instruction_cost::operator+=(const instruction_cost& x) noexcept {
  flops += x.flops;
  bytes_read += x.bytes_read;
  bytes_written += x.bytes_written;
  return *this;
}

instruction_cost cost_of(const instruction& x, std::size_t rows) {
  instruction_cost result;
  result.flops = main_flops(x, rows);
  for (const bool more : {x.bias.exists(), x.after != epilogue::none})
    result.flops += more ? elements_of(x.output, rows) : 0;
  result.bytes_read = bytes_read_by(x, rows);
  for (const auto* o : written_by(x))
    result.bytes_written += bytes_of(*o, rows);
  return result;
}

instruction_cost cost_of(const plan& x) {
  instruction_cost result;
  for (const auto& each : x.instructions())
    result += cost_of(each, x.max_rows());
  return result;
}

plan_memory memory_of(const plan& x) {
  plan_memory result;
  result.parameters = x.parameters().size() * sizeof(float);
  result.gradient = x.has_gradients() ? result.parameters : 0;
  result.arena = x.arena_elements() * sizeof(float);
  result.scratch = executor<float>::memory_bytes(x) - result.arena;
  const auto rows = x.max_rows();
  std::set<std::size_t> constants;
  std::size_t kept = 0;
  for (const auto& each : x.constants()) {
    constants.insert(each.where.index);
    kept += each.where.shape.elements(rows);
  }
  // Backwards: a value that an instruction reads is needed before it; a value that it writes is
  // not.
  live_values live;
  for (const auto& fetch : x.fetches())
    add(live, fetch, rows, constants);
  add(live, x.loss(), rows, constants);
  add(live, x.correct(), rows, constants);
  std::size_t most = total(live);
  for (auto i = x.instructions().size(); i-- > 0;) {
    const auto& each = x.instructions()[i];
    for (const auto* o : written_by(each))
      add(live, *o, rows, constants);
    auto before = live;
    for (const auto* o : written_by(each))
      if (o->where == operand::place::arena)
        before.erase(o->index);
    for (const auto* o : read_by(each)) {
      add(live, *o, rows, constants);
      add(before, *o, rows, constants);
    }
    most = std::max(most, total(live));
    live = std::move(before);
  }
  result.needed = (kept + most) * sizeof(float);
  return result;
}

} // namespace troupe
