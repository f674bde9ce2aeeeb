#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/precision.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

struct gradient_step;

/// The shapes of an operation, and the number of samples of a run (`rows`). With these, the FLOPs
/// of the operation are counted.
struct operation_sizes {
  std::size_t rows = 0;
  std::vector<const shape*> inputs;
  const shape* output = nullptr;
  bool transpose_a = false;
  troupe::window window;

  std::uint64_t of(const shape& x) const { return x.elements(rows); }
};

/// The kind of value that an operation produces.
enum class operation_kind : std::uint8_t {
  ordinary,
  /// The operation has no inputs. No step of a plan computes it.
  leaf,
  /// The result has the elements of the input, in the same memory. No step of a plan computes it.
  view,
  /// Element i of the result depends only on element i of each operand. The operands and the result
  /// have the same shape.
  elementwise,
  /// The loss, the gradient or the number of correct samples of a softmax over logits. If several
  /// of these operations have the same inputs and options, a single step of a plan computes them.
  /// This step is named after the loss.
  softmax_loss,
  /// Attention, its statistics, or a gradient of it. One step of a plan computes an attention and
  /// its statistics. Another step computes the gradients of all its operands.
  attention,
};

/// The properties of an operation that are the same on every device. Each device has a table of its
/// own, which says how the device computes the operation (kernels/cpu/operation_table.hpp).
struct operation_traits {
  static constexpr std::size_t none = ~std::size_t{0};

  operation op = operation::placeholder;
  /// The same text as the enumerator.
  std::string_view name;
  operation_kind kind = operation_kind::ordinary;
  /// The gradient rule: it appends nodes for the gradients of a node's inputs
  /// (kernels/graph/reverse_mode.hpp). Never null.
  void (*gradient)(const gradient_step&) = nullptr;
  /// Counts the FLOPs. A multiplication and an addition are two FLOPs. Functions such as exp, and
  /// comparisons, are one. Null counts as 0 FLOPs, for example for operations that only move
  /// elements. (For `elementwise`, which is null too, the program of the step gives the number.)
  std::uint64_t (*flops)(const operation_sizes&) = nullptr;
  /// The output may overwrite an input of the same size: the operation reads element i of the input
  /// before it writes element i of the output, and not afterwards.
  bool in_place = false;
  /// The result is the number of samples that are classified correctly.
  bool counts_correct = false;
  /// The operation accepts a sparse input.
  bool takes_sparse = false;
  /// The number of elements of the first input that the operation reads is the number of elements
  /// of the output.
  bool reads_part = false;
  operation_precision precision = operation_precision::wide;
  /// For products: the number of the input that keeps its type instead of being cast; or `none`.
  std::size_t keeps_type = none;
  /// The number of the input that selects which rows of the other input are read. The operation
  /// reads no other rows. `none`: it may read all rows.
  std::size_t names_read_rows = none;
  /// The number of the input that selects which rows of the result may differ from 0; or `none`.
  std::size_t names_written_rows = none;
};

/// The traits of an operation.
const operation_traits& traits_of(operation op) noexcept;

inline bool is_elementwise(operation op) noexcept {
  return traits_of(op).kind == operation_kind::elementwise;
}

} // namespace troupe
