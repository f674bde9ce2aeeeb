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

/// The operation of a node. The functions that build the nodes give the formulas: see
/// operations.hpp and the other headers in kernels/graph that are named below.
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
  sine,
  cosine,
  round,
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
  /// Conversion to another floating-point type.
  cast,
  /// Several element-wise operations in one pass. Only plans contain this operation.
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
  // conversion of whole numbers
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
  /// Not an operation. It must stay the last enumerator.
  end,
};

/// Number of operations. A table of operations has this number of rows.
inline constexpr auto operation_count = static_cast<std::size_t>(operation::end);

/// For example "matmul".
std::string_view to_string(operation op) noexcept;

/// A sliding window: a kernel of height x width that moves over an image in steps of the strides.
/// The image is padded with `pad` zeros on each side. Max pooling ignores these zeros. Neighbouring
/// elements of the kernel are `dilation` rows or columns apart.
struct window {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride_y = 1;
  std::int64_t stride_x = 1;
  std::int64_t pad_y = 0;
  std::int64_t pad_x = 0;
  /// For convolutions: the number of independent groups of channels.
  std::int64_t groups = 1;

  /// For convolutions: the distance of neighbouring elements of the kernel.
  std::int64_t dilation_y = 1;
  std::int64_t dilation_x = 1;
  /// For pooling: if true, the last position of the window may extend beyond the padded image
  /// (PyTorch's ceil_mode). But no position begins in the padding at the end of the image.
  bool ceil_mode = false;

  /// Height (extent_y) and width (extent_x) of the area under the kernel, in rows and columns of
  /// the image. With dilation, this area is larger than the kernel.
  std::int64_t extent_y() const noexcept { return dilation_y * (height - 1) + 1; }
  std::int64_t extent_x() const noexcept { return dilation_x * (width - 1) + 1; }
  /// Number of positions of the kernel: rows() in an image of height `image`, columns() in an image
  /// of width `image`. The image with its padding must be at least as large as the area under the
  /// kernel (extent_y, extent_x).
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

/// How softmax_cross_entropy uses its labels: options of PyTorch's CrossEntropyLoss.
struct cross_entropy {
  /// The target probabilities are 1 - smoothing for the label, plus smoothing / classes for every
  /// class (Szegedy et al., 2016). 0 <= smoothing < 1.
  double smoothing = 0;
  /// Rows with this label are ignored. If this is empty, no row is ignored.
  std::optional<std::int32_t> ignored = std::nullopt;

  bool operator==(const cross_entropy&) const = default;
};

/// The computation of a recurrent layer in one time step. sequence_operations.hpp gives the
/// formulas.
enum class cell : std::uint8_t { rnn, lstm, gru };

/// Describes where attention finds its queries, keys and values (kernels/graph/attention.cpp). They
/// are in one to three tensors, the operands of the node. An operand with four dimensions has only
/// queries, only keys or only values. In an operand (batch, time, columns), the queries of all
/// heads are consecutive columns. Likewise, the keys are consecutive columns, and the values are,
/// too.
struct attention_operands {
  /// The number of the operand that contains the queries (or keys, or values), and their first
  /// column in this operand.
  struct part {
    std::size_t operand = 0;
    std::size_t column = 0;
    bool operator==(const part&) const = default;
  };
  part queries;
  part keys;
  part values;
  std::int64_t heads = 1;
  /// Number of columns of one head.
  std::int64_t width = 1;
  bool causal = false;

  bool operator==(const attention_operands&) const = default;
};

/// A node of a graph: an operation, its inputs, and the shape of its result. A node reads only
/// nodes with smaller ids, so the ids are a topological order.
struct node {
  operation op = operation::constant;
  /// The name that the user gave. Without one, it consists of the operation and the id: "matmul_7".
  std::string name;
  troupe::shape shape;
  dtype type = dtype::float32;
  std::vector<std::uint32_t> inputs;
  /// For matmul and batched_matmul.
  bool transpose_a = false;
  bool transpose_b = false;
  /// A number that some operations need: the factor of scale, squared_error, softmax_cross_entropy
  /// and attention; the summand of offset; the bound of at_least, at_most and above; the slope of
  /// leaky_relu; the epsilon of normalize_rows and normalize_channels; the rate of dropout; the
  /// positions per sample of summed_variance.
  double factor = 1;
  /// For softmax_cross_entropy, its gradient and softmax_correct.
  cross_entropy labels;
  /// For dropout: identifies the random mask. For batch normalization: 1 if the statistics cover
  /// the batches of all workers, else 0.
  std::uint64_t key = 0;
  /// For convolutions and pooling.
  troupe::window window;
  /// For transpose: for each dimension of the result, the dimension of the operand from which it
  /// comes. For slice and place: the axis and the first position. For concat, reverse and blend:
  /// the axis.
  std::vector<std::size_t> axes;
  troupe::cell cell = troupe::cell::rnn;
  /// For attention, its statistics and its gradients.
  attention_operands attention;
  /// For placeholder: the position among the placeholders. For variable: the position in the
  /// layout. For attention_gradient: the number of the operand of attention whose gradient the node
  /// computes.
  std::size_t index = 0;
  /// The elements of a constant. If it has only one element, this element is repeated.
  std::vector<double> values;
};

/// A handle to a node of a graph. Functions of expressions append more nodes to the graph: `auto h
/// = relu(dense(x, w, b))`. An expression has the size of two words; pass it by value. The graph
/// must outlive the expression and must not move.
class expression {
public:
  expression() = default;
  expression(graph& owner, std::uint32_t id) noexcept : owner_(&owner), id_(id) {}

  /// True if the expression refers to a node. False for a default-constructed expression.
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

/// A static graph of typed nodes. All shapes are known when the graph is built. Dimension 0 of
/// per-sample tensors is the symbolic `shape::batch`.
///
/// Only one thread at a time may add nodes. Many threads may read a finished graph, for example to
/// make plans. A copy of a graph has its own nodes, but existing expressions still refer to the
/// original graph. If tensors do not fit, the functions below throw an input_error with the names
/// and shapes of the tensors.
class graph {
public:
  /// A value that the caller passes to each run, such as features (batch, 784) or int32 labels
  /// (batch).
  expression placeholder(std::string name, shape dims, dtype type = dtype::float32);
  /// A parameter. It is appended to parameters(). `decay` is used only for parameters of kind state
  /// (layout_entry::decay).
  expression variable(std::string name, shape dims, initializer initial = {},
                      parameter_kind kind = parameter_kind::trainable, double decay = 0.1);
  /// A constant of this shape with equal elements.
  expression constant(double value, shape dims = {});
  /// A constant with the given elements, row-major. The shape must not contain the batch.
  expression constant(std::vector<double> values, shape dims);

  /// Registers how training updates a variable of kind state, such as a running mean: by a
  /// statistic of the batch, such as its mean. `sum` has the shape of the variable. Its value is
  /// the statistic times the number of samples (for example summed_mean()).
  ///
  /// In a plan with gradients, this value is written to the variable's place in the flat gradient.
  /// Like a gradient, it is summed over workers before the update. Throws input_error if the
  /// variable is not of kind state, if the shapes differ, or if the variable is already registered.
  void update_state(expression variable, expression sum);
  /// The node ids (variable, sum) of all calls of update_state.
  const std::vector<std::pair<std::uint32_t, std::uint32_t>>& state_updates() const noexcept {
    return state_updates_;
  }

  /// The layout of the flat parameter vector: the variables in the order of their creation.
  const layout& parameters() const noexcept { return parameters_; }
  /// Ids of the placeholders in the order of their creation. The feeds of a run have the same
  /// order.
  const std::vector<std::uint32_t>& placeholders() const noexcept { return placeholders_; }
  const std::vector<troupe::node>& nodes() const noexcept { return nodes_; }
  const troupe::node& at(std::uint32_t id) const { return nodes_.at(id); }
  /// Sets the operand type of the products and convolutions that are added from now on: float32,
  /// bfloat16 or float16. precision.hpp explains how other operations choose their types.
  void set_precision(dtype type) noexcept { precision_ = type; }
  dtype precision() const noexcept { return precision_; }
  /// Converts `x` to this type. Returns `x` itself if it already has the type, or an existing cast
  /// of `x`. Otherwise, appends a cast.
  expression casted(expression x, dtype type);

  void rename(expression x, std::string name);
  /// The node with this name. Throws input_error if no node has this name.
  expression find(std::string_view name);

  /// Appends a node whose shape is already known. Only for the functions that build nodes
  /// (kernels/graph/operations.cpp and others). Gives the node a name if it has none.
  expression append(troupe::node x);

private:
  std::vector<troupe::node> nodes_;
  std::vector<std::uint32_t> placeholders_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> state_updates_;
  layout parameters_;
  dtype precision_ = dtype::float32;
  /// The ids of the existing casts, by operand and type (see casted).
  std::map<std::pair<std::uint32_t, dtype>, std::uint32_t> casts_;
};

/// One line per node, for example "7 matmul_7 = matmul(x, dense_1.weight^T) : float32 (batch,
/// 256)".
std::string to_string(const graph& x);

} // namespace troupe
