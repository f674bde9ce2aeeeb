#pragma once

#include "kernels/graph/dtype.hpp"
#include "kernels/graph/layout.hpp"
#include "kernels/graph/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

class graph;

/// The operation of a node. The formulas are next to the functions that build the nodes, in
/// kernels/graph/operations.hpp.
enum class operation : std::uint8_t {
  // leaves
  placeholder,
  variable,
  constant,
  // linear algebra
  matmul,
  add_bias,
  // kernels/graph/sparse_operations.hpp
  sparse_matmul,
  sparse_matmul_gradient,
  // element by element
  add,
  subtract,
  multiply,
  scale,
  divide,
  offset,
  exp,
  log,
  square_root,
  absolute,
  sign,
  erf,
  erfc,
  gelu,
  softplus,
  relu,
  leaky_relu,
  tanh,
  sigmoid,
  relu_gradient,
  leaky_relu_gradient,
  tanh_gradient,
  sigmoid_gradient,
  gelu_gradient,
  maximum,
  minimum,
  at_least,
  at_most,
  greater,
  above,
  select,
  /// The same numbers in another floating-point type.
  cast,
  /// Several element-wise operations in one pass. Only plans contain it.
  elementwise,
  // reductions, and the broadcasts that are their gradients
  sum,
  sum_leading,
  sum_last,
  broadcast,
  broadcast_leading,
  broadcast_last,
  // losses
  softmax,
  softmax_cross_entropy,
  softmax_cross_entropy_gradient,
  softmax_correct,
  binary_correct,
  squared_error,
  // whole numbers
  to_float,
  // a random mask
  dropout,
  // images: kernels/graph/image_operations.hpp
  conv2d,
  conv2d_input_gradient,
  conv2d_weight_gradient,
  add_channel_bias,
  sum_channels,
  broadcast_channels,
  multiply_channels,
  channel_moments,
  normalize_channels,
  normalize_channels_gradient,
  summed_mean,
  summed_variance,
  max_pool_select,
  max_pool_gradient,
  average_pool,
  average_pool_gradient,
  // sequences: kernels/graph/sequence_operations.hpp
  transpose,
  batched_matmul,
  slice,
  place,
  reverse,
  concat,
  blend,
  embedding,
  embedding_gradient,
  normalize_rows,
  normalize_rows_gradient,
  multiply_rows,
  causal_softmax,
  attention,
  attention_statistics,
  attention_gradient,
  recurrent,
  recurrent_gradient,
  // the same elements, in another shape or as if they were constant
  reshape,
  stop_gradient,
  /// Not an operation; must stay the last one.
  end,
};

/// Number of operations, which is the number of rows in a table.
inline constexpr auto operation_count = static_cast<std::size_t>(operation::end);

/// For example "matmul".
std::string_view to_string(operation op) noexcept;

/// A sliding window: a kernel of height x width that moves by the strides over an image. On each
/// side, the image has `pad` zeros, which a maximum ignores. Neighbouring elements of the kernel
/// are `dilation` apart.
struct window {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride_y = 1;
  std::int64_t stride_x = 1;
  std::int64_t pad_y = 0;
  std::int64_t pad_x = 0;
  /// For convolutions: the number of independent groups of channels.
  std::int64_t groups = 1;

  /// For convolutions.
  std::int64_t dilation_y = 1;
  std::int64_t dilation_x = 1;
  /// For pooling: a last window that extends beyond the padded image counts, too, unless it begins
  /// in the padding at the end (PyTorch's ceil_mode).
  bool ceil_mode = false;

  /// Rows and columns of the image from the first to the last one under the kernel.
  std::int64_t extent_y() const noexcept { return dilation_y * (height - 1) + 1; }
  std::int64_t extent_x() const noexcept { return dilation_x * (width - 1) + 1; }
  /// Number of positions of the kernel along an image of this height or width. The image with its
  /// padding must be at least as large as the kernel (extent_y or extent_x).
  std::int64_t rows(std::int64_t image) const noexcept {
    return positions(image, extent_y(), stride_y, pad_y);
  }
  std::int64_t columns(std::int64_t image) const noexcept {
    return positions(image, extent_x(), stride_x, pad_x);
  }
  bool operator==(const window&) const = default;

private:
  std::int64_t positions(std::int64_t image, std::int64_t extent, std::int64_t stride,
                         std::int64_t pad) const noexcept {
    const auto rest = image + 2 * pad - extent;
    if (!ceil_mode)
      return rest / stride + 1;
    const auto all = (rest + stride - 1) / stride + 1;
    return (all - 1) * stride < image + pad ? all : all - 1;
  }
};

/// How softmax_cross_entropy uses its labels, like PyTorch's CrossEntropyLoss.
struct cross_entropy {
  /// The target probabilities are 1 - smoothing for the label, plus smoothing / classes for every
  /// class (Szegedy et al., 2016). 0 <= smoothing < 1.
  double smoothing = 0;
  /// Rows with this label are ignored.
  std::optional<std::int32_t> ignored = std::nullopt;

  bool operator==(const cross_entropy&) const = default;
};

/// The computation of a recurrent layer in a time step. Formulas:
/// kernels/graph/sequence_operations.hpp.
enum class cell : std::uint8_t { rnn, lstm, gru };

/// The operands of attention (kernels/graph/attention.cpp). The queries, keys and values of all
/// heads are columns of up to three tensors.
struct attention_operands {
  /// The operand that has the queries (keys, values), and its first column with them.
  struct part {
    std::size_t operand = 0;
    std::size_t column = 0;
    bool operator==(const part&) const = default;
  };
  part queries;
  part keys;
  part values;
  std::int64_t heads = 1;
  /// Columns of a head.
  std::int64_t width = 1;
  bool causal = false;

  bool operator==(const attention_operands&) const = default;
};

/// A node of a graph: an operation, its inputs, and the shape of its result. A node reads only
/// nodes with smaller ids, so the ids are a topological order.
struct node {
  operation op = operation::constant;
  /// Given by the user; otherwise the operation and the id: "matmul_7".
  std::string name;
  troupe::shape shape;
  dtype type = dtype::float32;
  std::vector<std::uint32_t> inputs;
  /// For matmul and batched_matmul.
  bool transpose_a = false;
  bool transpose_b = false;
  /// Factor of scale, squared_error, softmax_cross_entropy and attention, summand of offset, bound
  /// of at_least, at_most and above, slope of leaky_relu, epsilon of normalize_rows and
  /// normalize_channels, rate of dropout, positions per sample of summed_variance.
  double factor = 1;
  /// For softmax_cross_entropy and its relatives.
  cross_entropy labels;
  /// For dropout: identifies the mask. For normalization over batches: 1 if the statistics cover
  /// all workers' batches.
  std::uint64_t key = 0;
  /// For convolutions and pooling.
  troupe::window window;
  /// For transpose: for each dimension of the result, the dimension of the operand. For slice and
  /// place: axis and first position. For concat, reverse and blend: axis.
  std::vector<std::size_t> axes;
  troupe::cell cell = troupe::cell::rnn;
  /// For attention and its relatives.
  attention_operands attention;
  /// Position among the placeholders (placeholder) or in the layout (variable). For
  /// attention_gradient: the operand of attention.
  std::size_t index = 0;
  /// Elements of a constant, or a single element that is repeated.
  std::vector<double> values;
};

/// A handle to a node of a graph. Expressions are combined to build further nodes: `auto h =
/// relu(dense(x, w, b))`. It is two words; pass it by value. The graph must outlive it and must not
/// move.
class expression {
public:
  expression() = default;
  expression(graph& owner, std::uint32_t id) noexcept : owner_(&owner), id_(id) {}

  /// False for a default-constructed one.
  bool valid() const noexcept { return owner_ != nullptr; }
  graph& owner() const noexcept { return *owner_; }
  std::uint32_t id() const noexcept { return id_; }
  const troupe::node& node() const;
  const troupe::shape& shape() const { return node().shape; }
  const std::string& name() const { return node().name; }
  bool operator==(const expression&) const = default;

private:
  graph* owner_ = nullptr;
  std::uint32_t id_ = 0;
};

/// A static graph of typed nodes. Shapes are known when it is built. Dimension 0 of per-sample
/// tensors is the symbolic `shape::batch`.
///
/// Only one thread at a time may build it. Many threads may read (plan) a finished graph. A copy
/// has its own nodes, but expressions still refer to the original. If tensors do not fit, functions
/// throw an input_error with their names and shapes.
class graph {
public:
  /// A value that is fed in each run, such as features (batch, 784) or int32 labels (batch).
  expression placeholder(std::string name, shape dims, dtype type = dtype::float32);
  /// A parameter. It is appended to parameters(). `decay` is for state (parameter_kind).
  expression variable(std::string name, shape dims, initializer initial = {},
                      parameter_kind kind = parameter_kind::trainable, double decay = 0.1);
  /// A constant of this shape with equal elements.
  expression constant(double value, shape dims = {});
  /// A constant with the given elements, row-major. Symbolic shapes are not possible.
  expression constant(std::vector<double> values, shape dims);

  /// Registers a batch's statistic for a variable of kind state. `sum` has the variable's shape and
  /// is the statistic of the batch times the number of samples (for example summed_mean()). A plan
  /// with gradients writes it to the variable's place in the flat gradient. It then reaches the
  /// update like a gradient, summed over workers. Throws input_error if the variable is trainable,
  /// if the shape differs, or if the variable is already registered.
  void update_state(expression variable, expression sum);
  /// (variable, sum) of all calls of update_state.
  const std::vector<std::pair<std::uint32_t, std::uint32_t>>& state_updates() const noexcept {
    return state_updates_;
  }

  /// The layout of the flat parameter vector: variables in order of creation.
  const layout& parameters() const noexcept { return parameters_; }
  /// Ids of the placeholders in order of creation. The feeds of a run have the same order.
  const std::vector<std::uint32_t>& placeholders() const noexcept { return placeholders_; }
  const std::vector<troupe::node>& nodes() const noexcept { return nodes_; }
  const troupe::node& at(std::uint32_t id) const { return nodes_.at(id); }
  /// Products and convolutions that are added from now on compute with operands of this type, and
  /// other operations choose theirs (kernels/graph/precision.hpp). float32, bfloat16 or float16.
  void set_precision(dtype type) noexcept { precision_ = type; }
  dtype precision() const noexcept { return precision_; }
  /// `x` in this type: `x` itself, or the cast that was made before, or a new one.
  expression casted(expression x, dtype type);

  /// Renames a node.
  void rename(expression x, std::string name);
  /// The node with this name. Throws input_error if there is none.
  expression find(std::string_view name);

  /// Appends an operation whose shape is already known; for kernels/graph/operations.cpp. Gives it
  /// a name if it has none.
  expression append(troupe::node x);

private:
  std::vector<troupe::node> nodes_;
  std::vector<std::uint32_t> placeholders_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> state_updates_;
  layout parameters_;
  dtype precision_ = dtype::float32;
  /// Casts by operand and type.
  std::map<std::pair<std::uint32_t, dtype>, std::uint32_t> casts_;
};

/// One line per node: "7 matmul_7 = matmul(x, dense_1.weight^T) : float32 (batch, 256)".
std::string to_string(const graph& x);

} // namespace troupe
