#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// What an instruction does in a run, counted from its formula; not measured.
///
/// FLOPs: a multiplication and an addition are two; each element-wise operation (exp, tanh, a
/// derivative) is one per element, as is a comparison of a maximum. Operations that only move
/// elements have none. Sparse inputs count as empty: how many entries they have is known at run
/// time only.
struct instruction_cost {
  std::uint64_t flops = 0;
  /// Bytes of operands, each once, from memory or a cache. For tables, only the rows in question.
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;

  instruction_cost& operator+=(const instruction_cost& x) noexcept;
  bool operator==(const instruction_cost&) const = default;
};

/// In a run of `rows` samples of float32.
instruction_cost cost_of(const instruction& x, std::size_t rows);

/// All instructions of a plan in a run of max_rows() samples.
instruction_cost cost_of(const plan& x);

/// Bytes of memory that a plan takes with float32, without its feeds.
struct plan_memory {
  std::size_t parameters = 0;
  std::size_t gradient = 0;
  /// The arena: activations and constants.
  std::size_t arena = 0;
  /// Scratch space of the executor.
  std::size_t scratch = 0;
  /// The largest size of values that exist at the same time, constants included. With this order of
  /// instructions, no arena can be smaller.
  std::size_t needed = 0;
};

plan_memory memory_of(const plan& x);

} // namespace troupe
