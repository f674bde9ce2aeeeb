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

/// What one step of a device computes together with an operation.
struct fusion_traits {
  /// The result may get an epilogue before it leaves the cache (instruction::after).
  bool takes_epilogue = false;
  /// Before that, it may get a bias, which is what this operation adds.
  std::optional<operation> bias;
  /// May be an epilogue itself: element-wise, of the result and at most one more operand.
  bool is_epilogue = false;
};

/// By operation; each device has its own.
using fusion_table = std::array<fusion_traits, operation_count>;

/// What a plan computes.
struct plan_options {
  /// Samples of a run: 0 .. max_rows.
  std::size_t max_rows = 64;
  /// Scalar loss, summed over the samples; may be left out.
  expression loss;
  /// Scalar made by softmax_correct or binary_correct; may be left out.
  expression correct;
  /// Nodes whose values can be read after a run, such as logits.
  std::vector<expression> fetches;
  /// Whether a run computes d loss / d parameter for all trainable variables.
  bool gradients = false;
  /// Least size of a bucket of gradients, in bytes of float32.
  std::size_t bucket_bytes = std::size_t{256} * 1024;
  /// Of the device that will run the plan, such as cpu_fusion(). Null: bias and activation are
  /// steps of their own.
  const fusion_table* fusion = nullptr;
};

/// A contiguous range of whole tensors in the flat vector. Its gradient is handed over as one unit
/// while the rest of the backward pass still runs.
struct bucket {
  range elements;
  /// Once this instruction has run, the gradient of the bucket is final **and no weight of it is
  /// read again in this run**: it may be overwritten with its new values.
  std::size_t ready_after = 0;
};

/// The gradient of a parameter (n, ...) whose rows are 0, except for rows that a feed of the run
/// names: the columns of a sparse feed, or the ids of an embedding. The run reads no other rows
/// either. Rows may be named twice.
struct row_sparse_gradient {
  /// Position in the layout.
  std::size_t parameter = 0;
  /// Position among the placeholders.
  std::size_t feed = 0;
};

/// How a graph is executed: instructions in order, each with the place of its operands. Built once,
/// immutable, shared by any number of executors and threads; does not refer to its graph.
///
/// Order is topological, the gradients of the last layers come first. Fused: softmax +
/// cross-entropy + gradient + number of correct ones; chains of element-wise operations; and, if
/// the device can (plan_options::fusion), matmul + bias + activation, matmul + derivative of the
/// activation. Activations live in one arena, laid out by lifetime (best fit) and in place where an
/// element-wise operation reads its operand last. Gradients of parameters are written directly to
/// their place in the flat gradient.
class plan {
public:
  /// Throws input_error if `gradients` is set without a loss, a loss is not a scalar, or an
  /// expression is of another graph.
  plan(const graph& source, const plan_options& options);

  const layout& parameters() const noexcept { return graph_.parameters(); }
  std::size_t max_rows() const noexcept { return max_rows_; }
  bool has_gradients() const noexcept { return gradients_; }

  /// The buckets: last layers first, together the whole flat vector. They become ready in this
  /// order. Empty without gradients.
  const std::vector<bucket>& buckets() const noexcept { return buckets_; }

  /// The number of placeholders of the graph, and the ones that this plan reads: other feeds may be
  /// empty.
  std::size_t feed_count() const noexcept { return graph_.placeholders().size(); }
  bool reads_feed(std::size_t index) const { return feed_read_.at(index); }
  const troupe::node& feed(std::size_t index) const {
    return graph_.at(graph_.placeholders().at(index));
  }

  // -- for executors --
  const std::vector<instruction>& instructions() const noexcept { return instructions_; }
  /// Constants, with their place in the arena: filled once.
  struct constant_value {
    operand where;
    std::vector<double> values;
  };
  const std::vector<constant_value>& constants() const noexcept { return constants_; }
  /// Elements of the arena, scratch space for matmul not included.
  std::size_t arena_elements() const noexcept { return arena_elements_; }
  /// Places of the fetches, in the order of plan_options::fetches.
  const std::vector<operand>& fetches() const noexcept { return fetches_; }
  /// Places of the loss and of the number of correct samples; of kind none if not requested.
  const operand& loss() const noexcept { return loss_; }
  const operand& correct() const noexcept { return correct_; }
  /// Ranges of the flat gradient that no instruction writes: state that is not updated
  /// (graph::update_state), and variables that the loss does not depend on.
  const std::vector<range>& zero_gradients() const noexcept { return zero_gradients_; }

  /// Parameters whose gradient is row-sparse, in the order of the layout: it is enough to send
  /// these rows.
  const std::vector<row_sparse_gradient>& row_sparse_gradients() const noexcept {
    return row_sparse_;
  }

  /// Instructions with shapes, places and bytes; arena; buckets.
  std::string to_string() const;

private:
  friend class planner;
  graph graph_;
  std::size_t max_rows_ = 0;
  bool gradients_ = false;
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
