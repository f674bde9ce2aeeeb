#include "kernels/cpu/plan_cost.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/graph/operation_traits.hpp"

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

std::uint64_t main_flops(const instruction& x, std::size_t rows) {
  // If the instruction also computes the gradient, one pass computes loss and gradient. Then the
  // FLOPs of the gradient include those of the loss.
  const auto op = x.gradient.exists() ? operation::softmax_cross_entropy_gradient : x.op;
  const auto flops = traits_of(op).flops;
  if (flops == nullptr)
    return x.program.size() * elements_of(x.output, rows); // an element-wise program
  operation_sizes sizes{rows, {}, &x.output.shape, x.transpose_a, x.window};
  for (const auto& input : x.inputs)
    sizes.inputs.push_back(&input.shape);
  return flops(sizes);
}

/// The operands that an instruction writes.
std::vector<const operand*> written_by(const instruction& x) {
  std::vector<const operand*> result;
  x.each_result([&](const operand& o) { result.push_back(&o); });
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
  if (traits_of(x.op).reads_part)
    result -= bytes_of(x.inputs[0], rows) - bytes_of(x.output, rows);
  return result;
}

/// The values that are at the same time in the arena, the memory for intermediate values. For each
/// value, the map has the position of its first element and its number of elements.
using live_values = std::map<std::size_t, std::size_t>;

void add(live_values& all, const operand& x, std::size_t rows,
         const std::set<std::size_t>& constants) {
  if (x.where != operand::place::arena || constants.contains(x.index))
    return;
  auto& size = all[x.index];
  const auto n = x.shape.elements(rows);
  size = std::max(size, is_narrow(x.type) ? (n + 1) / 2 : n);
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
  for (const bool more : {x.bias.exists(), x.after.has_value()})
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
  // Goes through the instructions backwards. A value takes memory from the instruction that writes
  // it to the last instruction that reads it. `live` contains the values that are needed after the
  // current instruction.
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
