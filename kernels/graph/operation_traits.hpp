#pragma once

#include "kernels/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

struct gradient_step;

/// The shapes of an operation in a run of `rows` samples: what its FLOPs are counted from.
struct operation_sizes {
  std::size_t rows = 0;
  std::vector<const shape*> inputs;
  const shape* output = nullptr;
  bool transpose_a = false;
  troupe::window window;

  std::uint64_t of(const shape& x) const { return x.elements(rows); }
};

/// What kind of value an operation makes.
enum class operation_kind : std::uint8_t {
  ordinary,
  /// No inputs: computed by no step of a plan.
  leaf,
  /// The elements of its input, in the same memory: computed by no step of a plan.
  view,
  /// Element i of the result depends on element i of each operand alone; all have one shape.
  elementwise,
  /// Loss, gradient or number of correct samples of a softmax over logits. One step of a plan, by
  /// the name of the loss, computes all of them.
  softmax_loss,
};

/// What is true of an operation on every device. What a device does with it is in a table of that
/// device: kernels/cpu/operation_table.hpp.
struct operation_traits {
  static constexpr std::size_t none = ~std::size_t{0};

  operation op = operation::placeholder;
  /// As the enumerator.
  std::string_view name;
  operation_kind kind = operation_kind::ordinary;
  /// Gives the inputs of a node their gradients (kernels/graph/reverse_mode.hpp). Never null.
  void (*gradient)(const gradient_step&) = nullptr;
  /// A multiplication and an addition are two; exp, a comparison and the like are one. Null: only
  /// moves elements.
  std::uint64_t (*flops)(const operation_sizes&) = nullptr;
  /// The output may overwrite an input of the same size: element i is read before it is written,
  /// and not later.
  bool in_place = false;
  /// The number of samples that are classified correctly.
  bool counts_correct = false;
  /// May have a sparse input.
  bool takes_sparse = false;
  /// Reads as many elements of the first input as the output has.
  bool reads_part = false;
  /// The input that names the only rows of the other input that are read.
  std::size_t names_read_rows = none;
  /// The input that names the only rows of the result that are not 0.
  std::size_t names_written_rows = none;
};

/// The row of an operation.
const operation_traits& traits_of(operation op) noexcept;

inline bool is_elementwise(operation op) noexcept {
  return traits_of(op).kind == operation_kind::elementwise;
}

} // namespace troupe
