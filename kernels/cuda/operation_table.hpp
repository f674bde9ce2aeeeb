#pragma once

#include "kernels/cuda/element.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/executor_state.hpp"

#include <cstddef>
#include <optional>
#include <span>

// A table that defines how a GPU runs each operation. This file is internal to the executor. The
// table has a row for each operation. The rows are next to the functions that launch their kernels:
// executor_dense.cpp, executor_images.cpp and executor_sequences.cpp.

namespace troupe::cuda {

/// An instruction of a run, and the values that most operations need.
struct step {
  executor_state& run;
  const instruction& x;
  /// The first two inputs, and the output. An input is null if it does not exist, or if it is int32
  /// or sparse. If the row computes with 16 bits (operation_row::mixed, narrow), these pointers may
  /// point to elements of 16 bits.
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
  /// The sums over all workers, in device memory. Null if the statistics are computed over the
  /// samples of this worker only.
  const double* totals() const { return run.has_totals(x) ? run.totals.data() : nullptr; }
  ending last() const {
    return {x.after.value_or(operation::end), run.read(x.epilogue_operand),
            x.epilogue_operand.type};
  }
  mixed_input values(std::size_t i) const { return {operand(i), x.inputs[i].type}; }
  mixed_output result() const { return {out, x.output.type}; }
  /// The memory to which the operation writes its result, before finish() adds the bias and applies
  /// the epilogue. This is usually the output of the instruction. If the output has 16 bits and a
  /// bias or an epilogue follows, it is work space of float32 (space_of_product), so that the
  /// result is rounded only once.
  mixed_output product() const;
};

/// The number of doubles of work space that step::product needs.
std::size_t space_of_product(const instruction& x, std::size_t rows);

/// Reads step::product, adds the bias of the instruction, applies its epilogue, and writes the
/// result. The bias has one value per channel. `inner` neighbouring elements belong to the same
/// channel (channel_arguments).
void finish(const step& s, std::size_t channels, std::size_t inner);

struct operation_row {
  static constexpr std::size_t no_input = ~std::size_t{0};

  operation op = operation::placeholder;
  void (*run)(const step&) = nullptr;
  /// The number of doubles of work space that a run of `rows` samples needs.
  std::size_t (*space)(const instruction& x, std::size_t rows) = nullptr;
  /// Only for batch normalization over the samples of all workers: computes this worker's part of
  /// the sums (cpu::sums_needed), and writes it to `out` in device memory.
  void (*sums)(const step&, double* out) = nullptr;
  /// True if the operation computes with operands of 16 bits itself. Otherwise, the executor
  /// converts them to float32 (kernels/plan/widened.hpp).
  bool mixed = false;
  /// Like `mixed`, but only if all floating-point operands have one type, and the result has this
  /// type or is float32.
  bool narrow = false;
  /// With `mixed` or `narrow`: the number of an input that must nevertheless be float32, such as a
  /// bias. By default, there is none.
  std::size_t wide_input = no_input;
  /// See fusion_traits.
  bool takes_epilogue = false;
  std::optional<operation> bias = std::nullopt;
};

std::span<const operation_row> dense_rows();
std::span<const operation_row> image_rows();
std::span<const operation_row> sequence_rows();

/// The row of an operation. `run` is null if no instruction has this operation, or if a GPU cannot
/// compute the operation yet.
const operation_row& row_of(operation op);

} // namespace troupe::cuda
