#pragma once

#include "kernels/cpu/executor_state.hpp"

#include <cstddef>
#include <span>

// The table of operations of the CPU: one row per operation, with the functions that run it.
// Internal to the executor. The rows are in executor_dense.cpp, executor_images.cpp and
// executor_sequences.cpp, next to the functions that they call.

namespace troupe::cpu {

/// One instruction of a run, with the pointers that most operations need.
template <class T>
struct step {
  executor_state<T>& run;
  const instruction& x;
  /// The first two inputs. A pointer is null if the instruction has no such input, or if the input
  /// is sparse or int32.
  const T* a = operand(0);
  const T* b = operand(1);
  T* out = run.write(x.output);

  const T* operand(std::size_t i) const {
    return i < x.inputs.size() ? run.read(x.inputs[i]) : nullptr;
  }
  std::size_t elements() const { return run.elements(x.output); }
  /// The sums over all workers that this instruction needs. Null if there is only one worker.
  const double* totals() const { return run.totals(x); }
  extent matrix(const troupe::operand& of) const { return matrix_extent(of.shape, run.rows); }
  /// Divides the rows of the result among threads. Calls f(range of rows, number of columns,
  /// position of the first element of these rows).
  template <class F>
  void by_rows(F f) const {
    const auto size = matrix(x.output);
    run.split_rows(size.rows, size.columns, [&](range part, std::size_t) {
      f(part, size.columns, part.begin * size.columns);
    });
  }
};

template <class T>
struct operation_row {
  operation op = operation::placeholder;
  void (*run)(const step<T>&) = nullptr;
  /// Number of elements of scratch space that each thread needs in a run of `rows` samples.
  std::size_t (*scratch)(const instruction& x, std::size_t rows) = nullptr;
  /// Number of elements of scratch space that all threads share.
  std::size_t (*shared)(const instruction& x, std::size_t rows) = nullptr;
  /// Computes this worker's part of the sums over all workers: out (2, channels), two sums per
  /// channel. Null, except for operations whose result can depend on the samples of all workers
  /// (node::key is not 0).
  void (*sums)(const step<T>&, double* out) = nullptr;
  /// These members have the same meaning as in fusion_traits.
  bool takes_epilogue = false;
  std::optional<operation> bias = std::nullopt;
};

template <class T>
std::span<const operation_row<T>> dense_rows();
template <class T>
std::span<const operation_row<T>> image_rows();
template <class T>
std::span<const operation_row<T>> sequence_rows();

/// Number of sums over all workers that an instruction needs.
std::size_t sums_needed(const instruction& x);

/// The row of an operation. Its `run` is null if no instruction has this operation.
template <class T>
const operation_row<T>& row_of(operation op);

} // namespace troupe::cpu
