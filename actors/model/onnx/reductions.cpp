// ONNX's operators that combine elements: sums, means, softmax, normalization.

#include "actors/model/onnx/model.hpp"
#include "actors/model/onnx/node.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe {

namespace {

/// Computes a maximum by repeated halving. If an extent is odd, both halves include the middle.
expression max_of_halves(expression x) {
  const auto axis = x.shape().rank() - 1;
  for (auto n = x.shape().last(); n > 1; n = x.shape().last()) {
    const auto half = (n + 1) / 2;
    const auto first = slice(x, axis, 0, half);
    x = maximum(first, slice(x, axis, n - half, n));
  }
  return x;
}

} // namespace

expression max_last(expression x) {
  const auto dims = x.shape(); // a copy: adding nodes invalidates references
  auto kept = dims.extents();
  kept.pop_back();
  const auto n = dims.last();
  if (n == 0)
    throw input_error("a maximum of no elements, of a tensor of shape " + to_string(dims));
  // The pooling below needs a batch, because images of the graph always have one.
  if (!dims.has_batch())
    return reshape(max_of_halves(x), shape{std::move(kept)});
  // Treats each row as a row of pixels, with a window as wide as the image.
  const auto rows = static_cast<std::int64_t>(shape{kept}.elements(1));
  window whole;
  whole.width = n;
  return reshape(max_pool(reshape(x, {shape::batch, 1, rows, n}), whole), shape{std::move(kept)});
}

onnx_rows rows_over(const onnx_node& node, const onnx_value& v,
                    const std::vector<std::size_t>& axes) {
  auto x = to_tensor(v, node.target());
  const auto rank = v.rank();
  std::vector<std::size_t> order;
  std::vector<std::int64_t> kept;
  std::int64_t together = 1;
  const auto dims = v.dims();
  onnx_rows result;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (std::ranges::find(axes, axis) != axes.end())
      continue;
    if (v.has_batch() && axis == v.batch_at)
      result.batch_at = order.size();
    order.push_back(axis);
    kept.push_back(dims[axis]);
  }
  for (const auto axis : axes) {
    if (v.has_batch() && axis == v.batch_at)
      node.refuse("axis " + std::to_string(axis) + " is the batch, whose samples must stay apart");
    order.push_back(axis);
    together *= dims[axis];
  }
  if (together == 0)
    node.refuse("a reduction of no elements, of a tensor of shape " + shape_text(dims));
  kept.push_back(together);
  x = transposed(onnx_value{x, v.batch_at}, order, node.target()).x;
  const auto extents = v.has_batch() ? in_graph_order(kept, result.batch_at) : shape{kept};
  result.x = reshape(x, extents);
  return result;
}

namespace {

/// The axes, from the attribute or (in newer versions) from input 1.
std::vector<std::size_t> axes_of(onnx_node& node, std::size_t rank, bool from_input) {
  auto given = node.integers("axes");
  if (from_input && node.has_input(1))
    given = node.integers_of(1, "axes");
  const bool nothing = node.integer("noop_with_empty_axes", 0) != 0;
  if (given.empty() && !nothing) {
    given.resize(rank);
    std::iota(given.begin(), given.end(), std::int64_t{0});
  }
  return node.axes(given, rank);
}

expression sum_of(expression x) {
  return sum_last(x);
}

expression mean_of(expression x) {
  const auto n = x.shape().last();
  return scale(sum_last(x), 1 / static_cast<double>(n));
}

/// log(sum exp(x)). The largest element is subtracted first. If it is infinite, the largest finite
/// number takes its place, because infinity minus infinity is NaN.
expression log_sum_exp(expression x) {
  constexpr double all = double{std::numeric_limits<float>::max()};
  const auto most = at_most(at_least(stop_gradient(max_last(x)), -all), all);
  const auto dims = x.shape();
  return log(sum_last(exp(x - broadcast_last(most, dims)))) + most;
}

expression min_of(expression x) {
  return scale(max_last(scale(x, -1)), -1);
}

expression absolute_sum(expression x) {
  return sum_last(absolute(x));
}

expression sum_of_squares(expression x) {
  return sum_last(x * x);
}

/// The root of the sum of squares. Its gradient at 0 is 0, not 0 / 0.
expression euclidean_norm(expression x) {
  constexpr double least = double{std::numeric_limits<float>::min()};
  const auto squares = sum_of_squares(x);
  return square_root(at_least(squares, least)) * sign(squares);
}

expression log_of_sum(expression x) {
  return log(sum_last(x));
}

/// Multiplies the first half by the second half until one element is left.
expression product_of(expression x) {
  const auto axis = x.shape().rank() - 1;
  for (auto n = x.shape().last(); n > 1; n = x.shape().last()) {
    const auto half = n / 2;
    const auto product = slice(x, axis, 0, half) * slice(x, axis, half, 2 * half);
    x = n % 2 == 0 ? product : troupe::concat({product, slice(x, axis, n - 1, n)}, axis);
  }
  auto kept = x.shape().extents();
  kept.pop_back();
  return reshape(x, shape{std::move(kept)});
}

using reducer = expression (*)(expression rows);

using whole_reducer = double (*)(double a, double b);

template <arithmetic how>
double whole(double a, double b) {
  return combine_whole(how, a, b);
}

/// Combines the elements of a constant of whole numbers along an axis.
onnx_constant combined(const onnx_node& node, const onnx_constant& c, std::size_t axis,
                       whole_reducer f) {
  onnx_constant result;
  result.type = c.type;
  result.dims = c.dims;
  result.dims[axis] = 1;
  if (c.dims[axis] < 1 || c.elements() > node.limit())
    node.refuse("a reduction of a constant of shape " + shape_text(c.dims)
                + ", which has no elements, has too many, or depends on the batch");
  const auto extent = static_cast<std::size_t>(c.dims[axis]);
  const auto behind = static_cast<std::size_t>(onnx_product(c.dims, axis + 1, c.dims.size()));
  for (std::size_t i = 0; i < result.elements(); ++i) {
    const auto first = i / behind * extent * behind + i % behind;
    auto x = c.at(first);
    for (std::size_t k = 1; k < extent; ++k)
      x = f(x, c.at(first + k * behind));
    result.values.push_back(x);
  }
  return result;
}

/// Reduces each row to one element with `f`. `of_whole` does the same for constants of whole
/// numbers, such as extents.
template <reducer f, whole_reducer of_whole = nullptr>
void reduce(onnx_node& node) {
  auto v = node.input(0);
  const auto axes = axes_of(node, v.rank(), true);
  const bool keep = node.integer("keepdims", 1) != 0;
  auto dims = v.dims();
  std::vector<std::int64_t> others;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (std::ranges::find(axes, axis) == axes.end())
      others.push_back(dims[axis]);
    else
      dims[axis] = 1;
  }
  if (v.known && v.known->type == onnx_constant::kind::integer && of_whole != nullptr) {
    for (const auto axis : axes)
      v = combined(node, *v.known, axis, of_whole);
  } else {
    const auto rows = rows_over(node, v, axes);
    v = {f(rows.x), rows.batch_at};
  }
  node.set(with_dims(node, v, keep ? dims : others));
}

/// Applies f to the rows (..., n) along `axis` of v.
template <class F>
onnx_value along(const onnx_node& node, const onnx_value& v, std::size_t axis, F f) {
  const auto rank = v.rank();
  const auto last = rank - 1;
  if (v.has_batch() && axis == v.batch_at)
    node.refuse("axis " + std::to_string(axis) + " is the batch, whose samples must stay apart");
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::swap(order[axis], order[last]);
  const auto moved = axis == last ? v : transposed(v, order, node.target());
  const onnx_value result{f(to_tensor(moved, node.target())), moved.batch_at};
  return axis == last ? result : transposed(result, order, node.target());
}

expression log_softmax_of(expression x) {
  const auto dims = x.shape(); // a copy: adding nodes invalidates references
  const auto shifted = x - broadcast_last(stop_gradient(max_last(x)), dims);
  return shifted - broadcast_last(log(sum_last(exp(shifted))), dims);
}

/// Applies f along the axis. Before version 13, all dimensions from the axis on are first merged
/// into one dimension.
template <reducer f>
void softmax_like(onnx_node& node) {
  onnx_value v{node.tensor(0), node.input(0).batch_at};
  const auto rank = v.rank();
  const auto given = node.integer("axis", node.version() < 13 ? 1 : -1);
  if (rank == 0)
    node.refuse("a single number has no axis");
  const auto axis = node.axis(given, rank);
  if (node.version() >= 13 || axis + 1 == rank) {
    node.set(along(node, v, axis, f));
    return;
  }
  std::vector<std::size_t> together;
  for (auto i = axis; i < rank; ++i)
    together.push_back(i);
  const auto rows = rows_over(node, v, together);
  node.set(with_dims(node, {f(rows.x), rows.batch_at}, v.dims()));
}

/// (x - mean) / deviation over the dimensions from `axis` on, times scale, plus bias.
void layer_normalization(onnx_node& node) {
  const auto& v = node.input(0);
  const auto rank = v.rank();
  const auto axis = node.axis(node.integer("axis", -1), rank);
  node.require("stash_type", 1, 1);
  std::vector<std::size_t> together;
  for (auto i = axis; i < rank; ++i)
    together.push_back(i);
  auto rows = rows_over(node, v, together);
  if (rows.x.shape().rank() < 2)
    rows.x = reshape(rows.x, {1, rows.x.shape().last()});
  const auto epsilon = node.real("epsilon", 1e-5);
  auto y = with_dims(node, {normalize_rows(rows.x, epsilon), rows.batch_at}, v.dims());
  y = node.combine(arithmetic::multiply, y, node.input(1));
  if (node.has_input(2))
    y = node.combine(arithmetic::add, y, node.input(2));
  node.set(y);
  if (!node.has_output(1) && !node.has_output(2))
    return;
  auto dims = v.dims();
  std::fill(dims.begin() + static_cast<std::ptrdiff_t>(axis), dims.end(), 1);
  const auto mean = mean_of(rows.x);
  const auto extents = rows.x.shape();
  const auto apart = rows.x - broadcast_last(mean, extents);
  const auto deviation = square_root(offset(mean_of(apart * apart), epsilon));
  const auto ones = node.target().constant(1, deviation.shape());
  node.set(1, with_dims(node, {mean, rows.batch_at}, dims));
  node.set(2, with_dims(node, {ones / deviation, rows.batch_at}, dims));
}

/// x / sqrt(mean of x^2 + epsilon) over the dimensions from `axis` on, times scale.
void rms_normalization(onnx_node& node) {
  const auto& v = node.input(0);
  const auto rank = v.rank();
  std::vector<std::size_t> together;
  for (auto i = node.axis(node.integer("axis", -1), rank); i < rank; ++i)
    together.push_back(i);
  node.require("stash_type", 1, 1);
  const auto rows = rows_over(node, v, together);
  const auto extents = rows.x.shape();
  const auto size = square_root(offset(mean_of(rows.x * rows.x), node.real("epsilon", 1e-5)));
  const auto normal = rows.x / broadcast_last(size, extents);
  const auto y = with_dims(node, {normal, rows.batch_at}, v.dims());
  node.set(node.combine(arithmetic::multiply, y, node.input(1)));
}

/// An input with one value per channel, in the shape (C, 1, 1, ...). It can then be combined with
/// (N, C, ...).
onnx_value per_channel(const onnx_node& node, std::size_t input, std::size_t rank) {
  auto dims = node.input(input).dims();
  if (dims.size() != 1)
    node.refuse("input " + std::to_string(input) + " must have a value per channel");
  dims.resize(rank - 1, 1);
  const onnx_value v{node.tensor(input)};
  return with_dims(node, v, dims);
}

void check_channels(const onnx_node& node, const onnx_value& v) {
  if (v.rank() < 2 || (v.has_batch() && v.batch_at != 0))
    node.refuse("expected an input (batch, channels, ...), found " + shape_text(v.dims()));
}

/// Normalizes each channel of each sample separately.
void instance_normalization(onnx_node& node) {
  const auto& v = node.input(0);
  check_channels(node, v);
  const auto rank = v.rank();
  std::vector<std::size_t> together(rank - 2);
  std::iota(together.begin(), together.end(), std::size_t{2});
  const auto rows = rows_over(node, v, together);
  const auto normal = normalize_rows(rows.x, node.real("epsilon", 1e-5));
  auto y = with_dims(node, {normal, rows.batch_at}, v.dims());
  y = node.combine(arithmetic::multiply, y, per_channel(node, 1, rank));
  node.set(node.combine(arithmetic::add, y, per_channel(node, 2, rank)));
}

/// Normalizes groups of channels of each sample.
void group_normalization(onnx_node& node) {
  const auto& v = node.input(0);
  check_channels(node, v);
  const auto rank = v.rank();
  const auto dims = v.dims();
  const auto groups = node.integer("num_groups", 0);
  node.require("stash_type", 1, 1);
  if (groups < 1 || dims[1] % groups != 0)
    node.refuse("attribute \"num_groups\" is " + std::to_string(groups) + ", which does not divide "
                + std::to_string(dims[1]) + " channels");
  const auto rest = onnx_product(dims, 1, rank) / groups;
  const auto rows = with_dims(node, v, {dims[0], groups, rest});
  auto y = with_dims(
    node,
    {normalize_rows(to_tensor(rows, node.target()), node.real("epsilon", 1e-5)), rows.batch_at},
    dims);
  constexpr std::int64_t with_channels = 21; // older versions have a scale and bias per group
  const auto vector = [&](std::size_t input) {
    const auto x = per_channel(node, input, rank);
    if (node.version() >= with_channels || groups == dims[1])
      return x;
    const auto spread = expanded(node, with_dims(node, x, {groups, 1}), {groups, dims[1] / groups});
    auto extents = x.dims();
    extents[0] = dims[1];
    return with_dims(node, spread, extents);
  };
  y = node.combine(arithmetic::multiply, y, vector(1));
  node.set(node.combine(arithmetic::add, y, vector(2)));
}

/// Batch normalization of a node that was exported for training. Training uses the statistics of
/// the batch and updates the running statistics. Testing uses the running statistics.
onnx_value measured_normalization(const onnx_node& node, double epsilon) {
  const auto& v = node.input(0);
  const batch_norm_variables variables{node.tensor(1), node.tensor(2), node.tensor(3),
                                       node.tensor(4)};
  for (const auto x : {variables.running_mean, variables.running_variance})
    if (x.node().op != operation::variable)
      node.refuse("the running mean and variance must be tensors of the model");
  const auto x = node.tensor(0);
  return {node.training() ? batch_norm(x, variables, epsilon)
                          : batch_norm_testing(x, variables, epsilon),
          v.batch_at};
}

/// Batch normalization. If the node was not exported for training, its means and variances are
/// constant.
void batch_normalization(onnx_node& node) {
  const auto& v = node.input(0);
  check_channels(node, v);
  node.ignore("momentum");
  node.ignore("training_mode");
  const auto epsilon = node.real("epsilon", 1e-5);
  if (node.version() < 9)
    node.require("spatial", 1, 1);
  if (node.version() < 7)
    node.require("is_test", 1, 0);
  for (std::size_t i = 1; i < 5; ++i)
    node.refuse_output(i, "statistics of the batch");
  if (measures_batch(node.proto(), node.version())) {
    node.set(measured_normalization(node, epsilon));
    return;
  }
  const auto rank = v.rank();
  const auto variance = per_channel(node, 4, rank).x;
  const onnx_value deviation{square_root(offset(variance, epsilon))};
  const auto factor = node.combine(arithmetic::divide, per_channel(node, 1, rank), deviation);
  // x - mean is computed first. Otherwise, the digits in which x differs from a large mean would be
  // lost.
  const auto centered = node.combine(arithmetic::subtract, v, per_channel(node, 3, rank));
  const auto scaled = node.combine(arithmetic::multiply, centered, factor);
  node.set(node.combine(arithmetic::add, scaled, per_channel(node, 2, rank)));
}

onnx_constant cumulative_sum_of(const onnx_node& node, const onnx_constant& c, std::size_t axis,
                                bool exclusive, bool backwards) {
  if (c.dims[axis] == onnx_constant::batch)
    node.refuse("axis " + std::to_string(axis) + " is the batch, whose samples must stay apart");
  node.charge(c.elements());
  auto result = c;
  result.values = elements_of(c, node.limit(), node);
  const auto behind = static_cast<std::size_t>(onnx_product(c.dims, axis + 1, c.dims.size()));
  const auto extent = static_cast<std::size_t>(c.dims[axis]);
  const bool whole = c.type == onnx_constant::kind::integer;
  for (std::size_t first = 0; first < result.values.size(); ++first) {
    if (first / behind % extent != 0)
      continue;
    double sum = 0;
    for (std::size_t i = 0; i < extent; ++i) {
      auto& x = result.values[first + (backwards ? extent - 1 - i : i) * behind];
      const auto before = sum;
      sum = whole ? combine_whole(arithmetic::add, sum, x) : sum + x;
      x = exclusive ? before : sum;
    }
  }
  return result;
}

/// CumSum: each element becomes the sum of the elements up to it. Computed in log2(n) steps, each
/// of which adds the elements 1, 2, 4, ... positions before. (A product with a matrix of ones would
/// spread infinity and NaN to the elements before them.)
void cumulative_sum(onnx_node& node) {
  const auto& v = node.input(0);
  const auto axis = node.axis(onnx_integer(node.number_of(1, "axis")), v.rank());
  const bool exclusive = node.integer("exclusive", 0) != 0;
  const bool backwards = node.integer("reverse", 0) != 0;
  if (v.known) {
    node.set(cumulative_sum_of(node, *v.known, axis, exclusive, backwards));
    return;
  }
  if (v.has_batch() && axis == v.batch_at)
    node.refuse("axis " + std::to_string(axis) + " is the batch, whose samples must stay apart");
  const auto at = v.graph_axis(axis);
  const auto dims = v.x.shape();
  const auto moved = [&](expression x, std::int64_t distance) {
    return place(slice(x, at, 0, dims[at] - distance), at, distance, dims);
  };
  auto x = backwards ? reverse(v.x, at) : v.x;
  if (exclusive)
    x = dims[at] > 1 ? moved(x, 1) : node.target().constant(0, dims);
  for (std::int64_t distance = 1; distance < dims[at]; distance *= 2)
    x = x + moved(x, distance);
  node.set({backwards ? reverse(x, at) : x, v.batch_at});
}

} // namespace

void add_reduction_operators(onnx_operators& all) {
  all["ReduceSum"] = {reduce<sum_of, whole<arithmetic::add>>, 1, "not over the batch"};
  all["ReduceProd"] = {reduce<product_of, whole<arithmetic::multiply>>, 1, "not over the batch"};
  all["ReduceMean"] = {reduce<mean_of>, 1, "not over the batch"};
  all["ReduceMax"] = {reduce<max_last, whole<arithmetic::maximum>>, 1, "not over the batch"};
  all["ReduceMin"] = {reduce<min_of, whole<arithmetic::minimum>>, 1, "not over the batch"};
  all["ReduceL1"] = {reduce<absolute_sum>, 1, "not over the batch"};
  all["ReduceL2"] = {reduce<euclidean_norm>, 1, "not over the batch"};
  all["ReduceSumSquare"] = {reduce<sum_of_squares>, 1, "not over the batch"};
  all["ReduceLogSum"] = {reduce<log_of_sum>, 1, "not over the batch"};
  all["ReduceLogSumExp"] = {reduce<log_sum_exp>, 1, "not over the batch"};
  all["CumSum"] = {cumulative_sum, 11, "not over the batch; the axis is a constant"};
  all["Softmax"] = {softmax_like<softmax>, 1, "not over the batch"};
  all["LogSoftmax"] = {softmax_like<log_softmax_of>, 1, "not over the batch"};
  all["LayerNormalization"] = {layer_normalization, 17, "not over the batch"};
  all["RMSNormalization"] = {rms_normalization, 23};
  all["GroupNormalization"] = {group_normalization, 18};
  all["InstanceNormalization"] = {instance_normalization, 1};
  all["BatchNormalization"] = {batch_normalization, 1, "no statistics of the batch as outputs"};
}

} // namespace troupe
