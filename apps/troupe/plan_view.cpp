#include "apps/troupe/plan_view.hpp"

#include "actors/output/text.hpp"
#include "apps/troupe/numbers.hpp"
#include "apps/troupe/text_table.hpp"
#include "kernels/cpu/plan_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

namespace troupe {

namespace {

constexpr std::size_t widest_shapes = 44;

/// The shape of an operand in a step with `rows` samples, for example "64x784".
std::string sizes(const operand& x, std::size_t rows) {
  std::string result;
  for (const auto extent : x.shape.extents())
    result += (result.empty() ? "" : "x")
      + (extent == shape::batch ? std::to_string(rows) : std::to_string(extent));
  return result.empty() ? "1" : result;
}

std::string shapes_read(const instruction& x, std::size_t rows) {
  std::string result;
  const auto add = [&](const operand& o, bool transposed) {
    if (o.exists())
      result += (result.empty() ? "" : ", ") + sizes(o, rows) + (transposed ? "'" : "");
  };
  for (std::size_t i = 0; i < x.inputs.size(); ++i)
    add(x.inputs[i], (i == 0 && x.transpose_a) || (i == 1 && x.transpose_b));
  add(x.bias, false);
  add(x.epilogue_operand, false);
  if (result.size() > widest_shapes)
    result = result.substr(0, widest_shapes - 3) + "...";
  return result;
}

/// The name of the instruction's operation, followed by the operations that it executes in the same
/// pass over the memory.
std::string operation_text(const instruction& x) {
  std::string result{to_string(x.op)};
  if (x.op == operation::elementwise)
    return fmt::format("elementwise, {} steps", x.program.size());
  if (x.bias.exists())
    result += " + bias";
  if (x.after)
    result += " + " + std::string{to_string(*x.after)};
  if (x.gradient.exists())
    result += " + gradient";
  return result;
}

std::string place_text(const operand& x) {
  switch (x.where) {
  case operand::place::arena:
    return fmt::format("arena {}", x.index);
  case operand::place::gradient:
    return fmt::format("gradient {}", x.index);
  default:
    return "";
  }
}

/// A number with a unit, for example "1.23 M".
std::string count_text(std::uint64_t x) {
  constexpr std::array<const char*, 5> units{"", " k", " M", " G", " T"};
  auto value = static_cast<double>(x);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < units.size(); ++unit)
    value /= 1000;
  return unit == 0 ? fmt::format("{}", x) : fmt::format("{:.3g}{}", value, units[unit]);
}

std::string share(std::uint64_t part, std::uint64_t all) {
  return all == 0
    ? "-"
    : fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(all));
}

void add_memory(std::string& out, const plan& what, std::size_t state_slots) {
  const auto memory = memory_of(what);
  const auto state = state_slots * memory.parameters;
  const auto all = memory.parameters + memory.gradient + state + memory.arena + memory.scratch;
  // The least memory that training with this plan needs. The gradient is always as large as the
  // parameters.
  const auto needed = memory.parameters + memory.gradient + state + memory.needed;
  const auto ratio = [](std::size_t a, std::size_t b) {
    return b == 0 ? std::string{"1.00"}
                  : fmt::format("{:.2f}", static_cast<double>(a) / static_cast<double>(b));
  };
  const auto line = [&](const char* name, const std::string& text) {
    fmt::format_to(std::back_inserter(out), "            {:<18}{}\n", name, text);
  };
  out += "memory of a step, one worker that holds all parameters:\n";
  line("parameters", readable_bytes(memory.parameters));
  line("gradient", readable_bytes(memory.gradient));
  line("optimizer state", readable_bytes(state));
  line("activations",
       fmt::format("{}, {} times the {} that exist at the same time", readable_bytes(memory.arena),
                   ratio(memory.arena, memory.needed), readable_bytes(memory.needed)));
  line("scratch space", readable_bytes(memory.scratch));
  line(
    "all",
    fmt::format("{}, {} times what is needed at least", readable_bytes(all), ratio(all, needed)));
}

} // namespace

std::string plan_text(const plan& what, std::size_t state_slots) {
  const auto rows = what.max_rows();
  const auto total = cost_of(what);
  text_table table{{"#", "operation", "reads", "makes", "at", "FLOPs", "bytes in, out", "share"},
                   "rllll"};
  std::size_t next = 0;
  for (std::size_t i = 0; i < what.instructions().size(); ++i) {
    const auto& x = what.instructions()[i];
    const auto cost = cost_of(x, rows);
    table.add({std::to_string(i), operation_text(x), shapes_read(x, rows), sizes(x.output, rows),
               place_text(x.output), count_text(cost.flops),
               count_text(cost.bytes_read) + ", " + count_text(cost.bytes_written),
               share(cost.flops, total.flops)});
    for (; next < what.buckets().size() && what.buckets()[next].ready_after == i; ++next)
      table.add_line(fmt::format("    -- bucket {}: gradient of parameters {} to {} is final", next,
                                 what.buckets()[next].elements.begin,
                                 what.buckets()[next].elements.end));
  }
  auto result = fmt::format("plan of a step of {} samples, {} instructions:\n{}\n", rows,
                            what.instructions().size(), fmt::join(table.lines(), "\n"));
  result += fmt::format(
    "all: {}FLOPs, {} read, {} written, {:.3g} FLOPs per byte\n",
    count_text(total.flops) + (total.flops < 1000 ? " " : ""), readable_bytes(total.bytes_read),
    readable_bytes(total.bytes_written),
    static_cast<double>(total.flops)
      / static_cast<double>(std::max<std::uint64_t>(total.bytes_read + total.bytes_written, 1)));
  add_memory(result, what, state_slots);
  return result;
}

} // namespace troupe
