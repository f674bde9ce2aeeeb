#pragma once

#include "kernels/cuda/element.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/executor_state.hpp"

#include <cstddef>
#include <optional>
#include <span>

// How a GPU runs each operation. Internal to the executor. The rows are next to their launches:
// executor_dense.cpp and its siblings.

namespace troupe::cuda {

/// An instruction of a run, and the values that most operations need.
struct step {
  executor_state& run;
  const instruction& x;
  /// The first two inputs. Null if there is none, or if it is of int32 or sparse. They point to
  /// elements of 16 bits if the row computes with them (operation_row::mixed); so does `out`.
  const float* a = operand(0);
  const float* b = operand(1);
  float* out = run.write(x.output);

  const float* operand(std::size_t i) const {
    return i < x.inputs.size() ? run.read(x.inputs[i]) : nullptr;
  }
  std::size_t elements() const { return run.elements(x.output); }
  troupe::extent matrix(const troupe::operand& of) const { return run.matrix(of); }
  stream where() const { return run.stream; }
  double* space() const { return run.space.data(); }
  /// The sums over all workers, in device memory; null if this worker's samples are all.
  const double* totals() const { return run.has_totals(x) ? run.totals.data() : nullptr; }
  ending last() const {
    return {x.after.value_or(operation::end), run.read(x.epilogue_operand),
            x.epilogue_operand.type};
  }
  mixed_input values(std::size_t i) const { return {operand(i), x.inputs[i].type}; }
  mixed_output result() const { return {out, x.output.type}; }
  /// The destination of what the operation itself computes, before `finish`: the result, or work
  /// space (space_of_product) if more follows before the result is rounded.
  mixed_output product() const;
};

/// Work space of step::product, in doubles.
std::size_t space_of_product(const instruction& x, std::size_t rows);

/// Adds the bias of the instruction to step::product, one value per `inner` elements of `channels`,
/// applies the rest of the instruction, and writes the result.
void finish(const step& s, std::size_t channels, std::size_t inner);

struct operation_row {
  static constexpr std::size_t no_input = ~std::size_t{0};

  operation op = operation::placeholder;
  void (*run)(const step&) = nullptr;
  /// Work space for a run of `rows` samples, in doubles.
  std::size_t (*space)(const instruction& x, std::size_t rows) = nullptr;
  /// For batch normalization over the samples of all workers: writes this worker's part of the sums
  /// (sums_needed of the CPU) to device memory.
  void (*sums)(const step&, double* out) = nullptr;
  /// True if it computes with operands of 16 bits itself. Otherwise, the executor converts them
  /// (kernels/plan/widened.hpp).
  bool mixed = false;
  /// The same, but all operands of floating point have one type, and the result has this type or is
  /// float32.
  bool narrow = false;
  /// With both: the input that must have float32 all the same, such as a bias; none by default.
  std::size_t wide_input = no_input;
  /// See fusion_traits.
  bool takes_epilogue = false;
  std::optional<operation> bias = std::nullopt;
};

std::span<const operation_row> dense_rows();
std::span<const operation_row> image_rows();
std::span<const operation_row> sequence_rows();

/// The row of an operation. `run` is null if no instruction has this operation, or if a GPU cannot
/// compute it yet.
const operation_row& row_of(operation op);

} // namespace troupe::cuda
