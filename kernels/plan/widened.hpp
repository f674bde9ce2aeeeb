#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

// Lets a device run a plan of mixed precision, although the device computes most operations only in
// float32.
// Internal to kernels.

namespace troupe {

/// A value of 16 bits (narrow), and the memory for its copy in float32 (wide). This memory
/// follows the memory of the plan's results (the arena).
struct conversion {
  operand narrow;
  operand wide;
};

/// The instructions of a plan, for a device that can compute only some instructions with values of
/// 16 bits. In all other instructions, float32 values replace the inputs and results of 16 bits.
/// The executor converts the inputs before the instruction, and the results after it.
struct widened_instructions {
  std::vector<instruction> instructions;
  struct conversions {
    std::vector<conversion> before;
    std::vector<conversion> after;
  };
  /// The conversions before and after each instruction; one entry per instruction.
  std::vector<conversions> around;
  /// The size of the arena including the float32 copies, in elements of float32. The copies begin
  /// after the arena of the plan. All instructions use the same memory for them.
  std::size_t arena_elements = 0;

  /// @param native returns true if the device can compute this instruction with operands of 16 bits
  widened_instructions(const plan& what, bool (*native)(const instruction&));
};

} // namespace troupe
