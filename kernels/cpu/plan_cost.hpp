#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// The work of an instruction in a run. It is computed from the formula of the operation, not
/// measured.
///
/// FLOPs: a multiplication and an addition are two FLOPs. An element-wise operation (exp, tanh, a
/// derivative) is one FLOP per element. A comparison in a maximum is one FLOP. Operations that only
/// copy elements have none. A sparse input is treated as empty, because its number of entries is
/// known only at run time.
struct instruction_cost {
  std::uint64_t flops = 0;
  /// Bytes of all operands. Each operand is counted once, even if it is read several times or is in
  /// a cache. If an operation reads only a part of its operand, such as some rows of a table, only
  /// this part is counted.
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;

  instruction_cost& operator+=(const instruction_cost& x) noexcept;
  bool operator==(const instruction_cost&) const = default;
};

/// The cost in a run of `rows` samples of float32.
instruction_cost cost_of(const instruction& x, std::size_t rows);

/// The cost of all instructions of a plan in a run of max_rows() samples.
instruction_cost cost_of(const plan& x);

/// Bytes of memory that a plan needs with float32, without its feeds.
struct plan_memory {
  std::size_t parameters = 0;
  std::size_t gradient = 0;
  /// The arena: activations and constants.
  std::size_t arena = 0;
  /// Scratch space of the executor.
  std::size_t scratch = 0;
  /// The largest total size of values that exist at the same time, including constants. The arena
  /// cannot be smaller, unless the instructions run in another order.
  std::size_t needed = 0;
};

plan_memory memory_of(const plan& x);

} // namespace troupe
