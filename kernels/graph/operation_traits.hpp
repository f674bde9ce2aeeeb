#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/graph/precision.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

struct gradient_step;

/// What is needed to count the FLOPs of an operation: its shapes and options, and the number of
/// samples in one execution of the graph (`rows`).
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
  /// The result has the elements of the input, in the same memory. No step of a plan computes the
  /// operation.
  view,
  /// Element i of the result depends only on element i of each operand. The operands and the result
  /// have the same shape.
  elementwise,
  /// The loss, the gradient or the number of correct samples of a softmax over logits. If several
  /// of these operations have the same inputs and options, a single step of a plan computes them.
  /// This step is named after the loss.
  softmax_loss,
  /// Attention, its statistics, or one of its gradients. One step of a plan computes an attention
  /// and its statistics. Another step computes the gradients of all its operands.
  attention,
};

/// The properties of an operation that are the same on every device. How a device computes the
/// operation is in the table of that device (kernels/cpu/operation_table.hpp for the CPU).
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
  /// comparisons, are one FLOP. Null means 0 FLOPs, for example for operations that only copy
  /// elements. (`elementwise` is null, too: its FLOPs are counted from instruction::program.)
  std::uint64_t (*flops)(const operation_sizes&) = nullptr;
  /// The output may overwrite an input of the same size. This is possible if the operation reads
  /// element i of the input only before it writes element i of the output.
  bool in_place = false;
  /// The result is the number of samples that are classified correctly.
  bool counts_correct = false;
  /// The operation accepts a sparse input.
  bool takes_sparse = false;
  /// The operation reads only a part of its first input: as many elements as the output has.
  bool reads_part = false;
  operation_precision precision = operation_precision::wide;
  /// For products: the number of the input that keeps its type, while the others are cast. `none`:
  /// all inputs are cast.
  std::size_t keeps_type = none;
  /// The number of the input that selects rows of the other input, as the ids of an embedding do.
  /// The operation reads no other rows. `none`: it may read all rows.
  std::size_t names_read_rows = none;
  /// The number of the input that selects rows of the result. All other rows of the result are 0.
  /// `none`: any row may differ from 0.
  std::size_t names_written_rows = none;
};

const operation_traits& traits_of(operation op) noexcept;

inline bool is_elementwise(operation op) noexcept {
  return traits_of(op).kind == operation_kind::elementwise;
}

} // namespace troupe
