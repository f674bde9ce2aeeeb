#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/precision.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

struct gradient_step;

/// The shapes of an operation in a run of `rows` samples, for counting its FLOPs.
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
  /// No inputs: no step of a plan computes it.
  leaf,
  /// The elements of its input, in the same memory: no step of a plan computes it.
  view,
  /// Element i of the result depends only on element i of each operand. All have the same shape.
  elementwise,
  /// Loss, gradient or number of correct samples of a softmax over logits. A single step of a plan,
  /// named after the loss, computes all of them.
  softmax_loss,
  /// Attention, its statistics, and its gradients. A single step of a plan computes all of those
  /// that have the same inputs.
  attention,
};

/// The properties that an operation has on every device. How a device computes it is in a table of
/// that device: kernels/cpu/operation_table.hpp.
struct operation_traits {
  static constexpr std::size_t none = ~std::size_t{0};

  operation op = operation::placeholder;
  /// The same as the enumerator.
  std::string_view name;
  operation_kind kind = operation_kind::ordinary;
  /// Computes the gradients of a node's inputs (kernels/graph/reverse_mode.hpp). Never null.
  void (*gradient)(const gradient_step&) = nullptr;
  /// A multiplication and an addition are two FLOPs; exp, a comparison and the like are one. Null
  /// if the operation only moves elements.
  std::uint64_t (*flops)(const operation_sizes&) = nullptr;
  /// The output may overwrite an input of the same size: element i is read before it is written,
  /// and not again.
  bool in_place = false;
  /// The result is the number of samples that are classified correctly.
  bool counts_correct = false;
  /// The operation accepts a sparse input.
  bool takes_sparse = false;
  /// The operation reads only as many elements of the first input as the output has.
  bool reads_part = false;
  operation_precision precision = operation_precision::wide;
  /// For products: the input that keeps its type.
  std::size_t keeps_type = none;
  /// The input that selects which rows of the other input are read; no other rows are.
  std::size_t names_read_rows = none;
  /// The input that selects which rows of the result may differ from 0.
  std::size_t names_written_rows = none;
};

/// The traits of an operation.
const operation_traits& traits_of(operation op) noexcept;

inline bool is_elementwise(operation op) noexcept {
  return traits_of(op).kind == operation_kind::elementwise;
}

} // namespace troupe
