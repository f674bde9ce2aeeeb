#pragma once

#include "kernels/graph/graph.hpp"
#include "kernels/plan/instruction.hpp"
#include "kernels/range.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The computations that one step of a device can combine with an operation.
struct fusion_traits {
  /// The result can get an epilogue before it leaves the cache (instruction::after).
  bool takes_epilogue = false;
  /// Before the epilogue, the result can get a bias. This is the operation that adds it.
  std::optional<operation> bias;
  /// The operation can be an epilogue: it is element-wise in the result and at most one other
  /// operand.
  bool is_epilogue = false;
};

/// Indexed by operation. Each device has its own table.
using fusion_table = std::array<fusion_traits, operation_count>;

/// The results that a plan computes.
struct plan_options {
  /// Largest number of samples in a run.
  std::size_t max_rows = 64;
  /// Scalar loss, summed over the samples; optional.
  expression loss;
  /// Scalar from softmax_correct or binary_correct; optional.
  expression correct;
  /// Nodes whose values can be read after a run, such as logits.
  std::vector<expression> fetches;
  /// True if a run computes d loss / d parameter for all trainable variables.
  bool gradients = false;
  /// Smallest size of a bucket of gradients, in bytes of float32.
  std::size_t bucket_bytes = std::size_t{256} * 1024;
  /// bfloat16 or float16: mixed precision (lower_precision of kernels/graph/precision.hpp).
  dtype precision = dtype::float32;
  /// With gradients: the plan has one more placeholder, the last one, a scalar. All gradients of
  /// trainable parameters, and all values between them and the loss, are multiplied by it. In
  /// float16, small gradients would be rounded to 0 otherwise.
  bool scale_loss = false;
  /// The table of the device that will run the plan, such as cpu_fusion(). Null: bias and
  /// activation are separate steps.
  const fusion_table* fusion = nullptr;
};

/// A contiguous range of whole tensors in the flat vector. Its gradient is passed on as a unit
/// while the rest of the backward pass still runs.
struct bucket {
  range elements;
  /// After this instruction, the gradient of the bucket is final **and none of its weights is read
  /// again in this run**: the weights may be overwritten with their new values.
  std::size_t ready_after = 0;
};

/// A parameter (n, ...) whose gradient is 0 except for some rows. A feed selects these rows: by the
/// columns of a sparse feed, or by the ids of an embedding. The run reads no other rows of the
/// parameter. A row may be selected twice.
struct row_sparse_gradient {
  /// Position in the layout.
  std::size_t parameter = 0;
  /// Position among the placeholders.
  std::size_t feed = 0;
};

/// The execution of a graph: a sequence of instructions with the positions of their operands. Built
/// once, immutable, and shared by any number of executors and threads. It does not refer to its
/// graph.
///
/// The order is topological, with the gradients of the last layers first. These are fused: softmax
/// + cross-entropy + gradient + number of correct samples; chains of element-wise operations; and,
/// if the device can (plan_options::fusion), matmul + bias + activation, and matmul + derivative of
/// the activation. Activations are in a single arena, placed by lifetime (best fit). An
/// element-wise operation works in place if it is the last reader of its operand. Gradients of
/// parameters are written directly to their place in the flat gradient.
class plan {
public:
  /// Throws input_error if `gradients` is set without a loss, if a loss is not a scalar, or if an
  /// expression belongs to another graph.
  plan(const graph& source, const plan_options& options);

  const layout& parameters() const noexcept { return graph_.parameters(); }
  std::size_t max_rows() const noexcept { return max_rows_; }
  bool has_gradients() const noexcept { return gradients_; }

  /// The buckets, the last layers first. Together they cover the flat vector, and they become ready
  /// in this order. Empty without gradients.
  const std::vector<bucket>& buckets() const noexcept { return buckets_; }

  /// The number of placeholders in the graph, and those that this plan reads. Feeds for the others
  /// may be empty.
  std::size_t feed_count() const noexcept { return graph_.placeholders().size(); }
  bool reads_feed(std::size_t index) const { return feed_read_.at(index); }
  const troupe::node& feed(std::size_t index) const {
    return graph_.at(graph_.placeholders().at(index));
  }

  /// See plan_options.
  dtype precision() const noexcept { return precision_; }
  /// Position of the placeholder of plan_options::scale_loss; nothing without it.
  std::optional<std::size_t> loss_scale_feed() const noexcept { return loss_scale_feed_; }

  // -- for executors --
  const std::vector<instruction>& instructions() const noexcept { return instructions_; }
  /// Constants and their positions in the arena. They are written once.
  struct constant_value {
    operand where;
    std::vector<double> values;
  };
  const std::vector<constant_value>& constants() const noexcept { return constants_; }
  /// Size of the arena, without scratch space for matmul: a number of float32. Two elements of 16
  /// bits take the place of one.
  std::size_t arena_elements() const noexcept { return arena_elements_; }
  /// Positions of the fetches, in the order of plan_options::fetches.
  const std::vector<operand>& fetches() const noexcept { return fetches_; }
  /// Positions of the loss and of the number of correct samples; of kind none if not requested.
  const operand& loss() const noexcept { return loss_; }
  const operand& correct() const noexcept { return correct_; }
  /// Ranges of the flat gradient that no instruction writes: state without an update
  /// (graph::update_state), and variables that do not affect the loss.
  const std::vector<range>& zero_gradients() const noexcept { return zero_gradients_; }

  /// Parameters with row-sparse gradients, in the order of the layout. It is enough to send the
  /// selected rows.
  const std::vector<row_sparse_gradient>& row_sparse_gradients() const noexcept {
    return row_sparse_;
  }

  /// All instructions with shapes, positions and bytes; the arena; the buckets.
  std::string to_string() const;

private:
  friend class planner;
  graph graph_;
  std::size_t max_rows_ = 0;
  bool gradients_ = false;
  dtype precision_ = dtype::float32;
  std::optional<std::size_t> loss_scale_feed_;
  std::vector<instruction> instructions_;
  std::vector<bucket> buckets_;
  std::vector<bool> feed_read_;
  std::vector<constant_value> constants_;
  std::vector<operand> fetches_;
  std::vector<range> zero_gradients_;
  std::vector<row_sparse_gradient> row_sparse_;
  operand loss_;
  operand correct_;
  std::size_t arena_elements_ = 0;
};

} // namespace troupe
