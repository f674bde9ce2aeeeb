#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

// Lets a device run a plan of mixed precision, although most of its loops support only float32.
// Internal to kernels.

namespace troupe {

/// A value of 16 bits (narrow), and its place in float32 (wide), which is beyond the arena of the
/// plan.
struct conversion {
  operand narrow;
  operand wide;
};

/// The instructions of a plan, adapted to such a device. If the device cannot compute an
/// instruction with values of 16 bits, float32 values replace the inputs and results of 16 bits.
/// The executor converts the inputs before the instruction, and the results after it.
struct widened_instructions {
  std::vector<instruction> instructions;
  struct conversions {
    std::vector<conversion> before;
    std::vector<conversion> after;
  };
  /// The conversions before and after each instruction; one entry per instruction.
  std::vector<conversions> around;
  /// The size of the arena including these float32 values, in elements of float32. All instructions
  /// use the same memory for the float32 values, which begins after the arena of the plan.
  std::size_t arena_elements = 0;

  /// @param native true if the device can compute this instruction with operands of 16 bits
  widened_instructions(const plan& what, bool (*native)(const instruction&));
};

} // namespace troupe
