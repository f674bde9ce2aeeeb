#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

// How a device runs a plan of mixed precision if its loops know only float32. Internal to kernels.

namespace troupe {

/// The same elements in 16 bits, and in float32 beyond the plan's arena.
struct conversion {
  operand narrow;
  operand wide;
};

/// The instructions of a plan. In an instruction that a device cannot compute with operands of 16
/// bits, these operands are replaced: others of float32 take their places. The executor converts
/// the operands before the instruction, and its results after it.
struct widened_instructions {
  std::vector<instruction> instructions;
  struct conversions {
    std::vector<conversion> before;
    std::vector<conversion> after;
  };
  /// One per instruction.
  std::vector<conversions> around;
  /// The size of the arena with these operands, in elements of float32. The instructions share the
  /// place behind the plan's own arena.
  std::size_t arena_elements = 0;

  /// @param native true if the device can compute this instruction with operands of 16 bits
  widened_instructions(const plan& what, bool (*native)(const instruction&));
};

} // namespace troupe
