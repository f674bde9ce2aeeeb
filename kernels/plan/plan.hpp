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

/// Which operations a device can fuse with a given operation, that is, compute in the same step.
/// One entry of a fusion_table.
struct fusion_traits {
  /// The step can apply an epilogue, a last element-wise operation, before the result leaves the
  /// cache (instruction::after).
  bool takes_epilogue = false;
  /// The step can add a bias before the epilogue. The value is the operation that adds this bias in
  /// the graph, such as add_bias.
  std::optional<operation> bias;
  /// The operation can be the epilogue of another operation. It must be element-wise. Besides the
  /// result of the other operation, it reads at most one operand.
  bool is_epilogue = false;
};

/// The table of a device, indexed by operation.
using fusion_table = std::array<fusion_traits, operation_count>;

/// What a plan computes, and for which device.
struct plan_options {
  /// Largest number of samples in a run.
  std::size_t max_rows = 64;
  /// The loss, a scalar that is summed over the samples. Optional.
  expression loss;
  /// The number of correct samples, a scalar from softmax_correct or binary_correct. Optional.
  expression correct;
  /// Nodes whose values can be read after a run, such as logits.
  std::vector<expression> fetches;
  /// If true, a run also computes d loss / d parameter for all trainable variables.
  bool gradients = false;
  /// Smallest size of a bucket of gradients, in bytes of float32.
  std::size_t bucket_bytes = std::size_t{256} * 1024;
  /// The type in which products compute. bfloat16 or float16 means mixed precision (lower_precision
  /// in kernels/graph/precision.hpp).
  dtype precision = dtype::float32;
  /// Used only with `gradients`. If true, the plan has an additional placeholder, which is the last
  /// one. Its value is a scalar, the loss scale. The run multiplies the gradients of all trainable
  /// parameters, and all gradients from which these are computed, by the loss scale. This helps in
  /// float16, where small gradients would be rounded to 0.
  bool scale_loss = false;
  /// The table of the device that will run the plan, such as cpu_fusion(). If it is null, bias and
  /// activation are separate steps.
  const fusion_table* fusion = nullptr;
};

/// A bucket: a contiguous range of the flat parameter vector that consists of whole tensors. The
/// gradient of a bucket is passed on as a unit, while the backward pass computes the gradients of
/// other buckets.
struct bucket {
  range elements;
  /// The number of an instruction. After this instruction, the gradient of the bucket is final,
  /// **and the run does not read the weights of the bucket again**. So the caller may overwrite the
  /// weights with their new values.
  std::size_t ready_after = 0;
};

/// A parameter (n, ...) whose gradient is 0 except in some of its n rows. A feed (the value of a
/// placeholder) selects these rows. For a sparse feed, they are its columns; for an embedding, they
/// are the ids. The run reads only the selected rows of the parameter. The feed may select a row
/// twice.
struct row_sparse_gradient {
  /// Position of the parameter in the layout.
  std::size_t parameter = 0;
  /// Position of the feed among the placeholders.
  std::size_t feed = 0;
};

/// A plan describes the execution of a graph: a sequence of instructions with the positions of
/// their operands. A plan never changes after its construction. Any number of executors and threads
/// can share it. It has its own copy of the graph.
///
/// The order of the instructions is topological. Gradients of the last layers come first. The plan
/// fuses these operations into one instruction:
/// - softmax, cross-entropy, its gradient and the number of correct samples;
/// - chains of element-wise operations;
/// - matmul, bias and activation, if the device supports this (plan_options::fusion);
/// - matmul and the derivative of an activation, if the device supports this.
///
/// All intermediate values are in a single block of memory, the arena. A value takes memory only
/// from the instruction that computes it to the last instruction that reads it. It gets the
/// smallest free part that is large enough (best fit). An element-wise operation that is the last
/// reader of its operand overwrites the operand. Gradients of parameters are written directly to
/// their place in the flat gradient.
class plan {
public:
  /// Throws input_error if `gradients` is set without a loss, if the loss is not a scalar, or if an
  /// expression belongs to another graph.
  plan(const graph& source, const plan_options& options);

  const layout& parameters() const noexcept { return graph_.parameters(); }
  std::size_t max_rows() const noexcept { return max_rows_; }
  bool has_gradients() const noexcept { return gradients_; }

  /// The buckets. Together they cover the flat vector. They become ready in this order, the buckets
  /// of the last layers first. Empty if the plan has no gradients.
  const std::vector<bucket>& buckets() const noexcept { return buckets_; }

  /// The number of placeholders of the graph. A plan may read only some of them (reads_feed). The
  /// caller may leave the feeds of the other placeholders empty.
  std::size_t feed_count() const noexcept { return graph_.placeholders().size(); }
  bool reads_feed(std::size_t index) const { return feed_read_.at(index); }
  const troupe::node& feed(std::size_t index) const {
    return graph_.at(graph_.placeholders().at(index));
  }

  /// See plan_options::precision.
  dtype precision() const noexcept { return precision_; }
  /// The position of the placeholder that plan_options::scale_loss adds. Empty if the option is not
  /// set.
  std::optional<std::size_t> loss_scale_feed() const noexcept { return loss_scale_feed_; }

  // -- for executors --
  const std::vector<instruction>& instructions() const noexcept { return instructions_; }
  /// A constant and its position in the arena. The constructor of an executor writes it.
  struct constant_value {
    operand where;
    std::vector<double> values;
  };
  const std::vector<constant_value>& constants() const noexcept { return constants_; }
  /// Size of the arena in elements of float32. Two elements of 16 bits take the space of one.
  /// Scratch space, such as for matmul, is not included.
  std::size_t arena_elements() const noexcept { return arena_elements_; }
  /// Positions of the fetches, in the order of plan_options::fetches.
  const std::vector<operand>& fetches() const noexcept { return fetches_; }
  /// Positions of the loss and of the number of correct samples. The place is `none` if
  /// plan_options did not request the value.
  const operand& loss() const noexcept { return loss_; }
  const operand& correct() const noexcept { return correct_; }
  /// Ranges of the flat gradient that no instruction writes. The executor sets them to 0. They
  /// belong to state without an update (graph::update_state), and to variables that do not affect
  /// the loss.
  const std::vector<range>& zero_gradients() const noexcept { return zero_gradients_; }

  /// Parameters with row-sparse gradients, in the order of the layout. A worker needs to send only
  /// the selected rows of such a gradient.
  const std::vector<row_sparse_gradient>& row_sparse_gradients() const noexcept {
    return row_sparse_;
  }

  /// A description for people: all instructions with shapes, positions and bytes; the size of the
  /// arena; the buckets.
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
