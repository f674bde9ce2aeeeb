#include "actors/model/onnx/value.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

std::string describe(expression x) {
  return "\"" + x.name() + "\" " + to_string(x.shape());
}

std::int64_t product(const std::vector<std::int64_t>& extents, std::size_t begin, std::size_t end) {
  std::int64_t result = 1;
  for (auto i = begin; i < end; ++i)
    result *= extents[i] == shape::batch ? 1 : extents[i];
  return result;
}

/// Repeats x `count` times along `axis`. `extents` are those of x in the graph; the extent at
/// `axis` is 1.
expression repeat(expression x, std::vector<std::int64_t> extents, std::size_t axis,
                  std::int64_t count) {
  const bool batch = x.shape().has_batch();
  const auto before = product(extents, 0, axis);
  const auto behind = product(extents, axis + 1, extents.size());
  extents[axis] = count;
  if (!batch && before == 1)
    return reshape(broadcast_leading(reshape(x, {behind}), {count, behind}), shape{extents});
  const auto rows = before * behind;
  const auto flat = batch ? shape{shape::batch, rows} : shape{rows};
  const auto wide = batch ? shape{shape::batch, rows, count} : shape{rows, count};
  auto y = broadcast_last(reshape(x, flat), wide);
  if (behind > 1) {
    y = batch ? transpose(reshape(y, {shape::batch, before, behind, count}), {0, 1, 3, 2})
              : transpose(reshape(y, {before, behind, count}), {0, 2, 1});
  }
  return reshape(y, shape{extents});
}

/// Adds dimensions of 1 to v, so that its rank becomes `rank`, as ONNX does before an operation
/// with operands of different ranks. `batch_at` is the position of the batch among the new
/// dimensions.
expression align(const onnx_value& v, std::size_t rank, std::size_t batch_at, bool batch,
                 graph& g) {
  onnx_value once = v;
  if (v.known && std::ranges::find(v.known->dims, onnx_constant::batch) != v.known->dims.end()) {
    auto constant = *v.known;
    constant.dims = onnx_dims_of_a_sample(std::move(constant.dims));
    once = constant;
  }
  const auto x = to_tensor(once, g);
  auto dims = once.dims();
  dims.insert(dims.begin(), rank - dims.size(), 1);
  const bool has_batch = v.has_batch();
  const auto own = v.batch_at + rank - v.rank();
  if (has_batch && own != batch_at)
    throw input_error(describe(x) + " has the batch at dimension " + std::to_string(own)
                      + " and the other operand at " + std::to_string(batch_at));
  if (batch && !has_batch && dims[batch_at] != 1)
    throw input_error(describe(x) + " has " + std::to_string(dims[batch_at])
                      + " elements where the other operand has the batch");
  const auto extents = batch ? in_graph_order(dims, batch_at) : shape{dims};
  return extents == x.shape() ? x : reshape(x, extents);
}

/// True if all extents are 1 except the extent at `axis`, and the shape has no batch.
bool only_extent(const shape& x, std::size_t axis) {
  for (std::size_t i = 0; i < x.rank(); ++i)
    if (i != axis && x[i] != 1)
      return false;
  return !x.has_batch();
}

/// Computes a + b, a - b or a * b with a special operation of the graph, if b is a row or has one
/// value per channel. Otherwise, the result is not valid().
expression with_vector(arithmetic how, expression a, expression b) {
  const auto dims = a.shape(); // a copy: adding nodes invalidates references
  const bool sum = how == arithmetic::add || how == arithmetic::subtract;
  if ((!sum && how != arithmetic::multiply) || dims.rank() == 0)
    return {};
  const auto last = dims.rank() - 1;
  const auto vector = [&](std::size_t axis) {
    const auto x = b.shape().rank() == 1 ? b : reshape(b, {dims[axis]});
    return how == arithmetic::subtract ? scale(x, -1) : x;
  };
  if (only_extent(b.shape(), last) && b.shape()[last] == dims[last])
    return sum ? add_bias(a, vector(last)) : multiply_rows(a, vector(last));
  if (dims.rank() < 3 || !only_extent(b.shape(), 1) || b.shape()[1] != dims[1])
    return {};
  const auto channels = vector(1);
  return sum ? add_channel_bias(a, channels) : multiply_channels(a, channels);
}

double maximum(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

double minimum(double a, double b) {
  return std::isnan(a) || a < b ? a : b;
}

/// Computes a + b, a - b, and so on, for expressions or for numbers.
template <class T>
T apply(arithmetic how, T a, T b) {
  switch (how) {
  case arithmetic::add:
    return a + b;
  case arithmetic::subtract:
    return a - b;
  case arithmetic::multiply:
    return a * b;
  case arithmetic::divide:
    return a / b;
  case arithmetic::maximum:
    return maximum(a, b);
  case arithmetic::minimum:
    return minimum(a, b);
  }
  return a;
}

/// True if a normal float can represent the number's magnitude.
bool is_normal(double x) {
  using limits = std::numeric_limits<float>;
  return std::abs(x) >= double{limits::min()} && std::abs(x) <= double{limits::max()};
}

/// Combines x with one number. If the graph has no operation for this, the result is not valid().
expression with_number(arithmetic how, expression x, double number, bool number_first) {
  switch (how) {
  case arithmetic::add:
    return offset(x, number);
  case arithmetic::subtract:
    return number_first ? offset(scale(x, -1), number) : offset(x, -number);
  case arithmetic::multiply:
    return scale(x, number);
  case arithmetic::divide:
    // The graph multiplies by the reciprocal. This is exact for powers of two; otherwise, the last
    // bit may differ.
    return number_first || !is_normal(1 / number) ? expression{} : scale(x, 1 / number);
  case arithmetic::maximum:
    return std::isnan(number) ? expression{} : at_least(x, number);
  case arithmetic::minimum:
    return std::isnan(number) ? expression{} : at_most(x, number);
  }
  return {};
}

/// True if v is a constant of one repeated number, and combining it with a tensor of this rank does
/// not change the tensor's shape.
bool is_number(const onnx_value& v, std::size_t rank) {
  return v.known && v.known->uniform() && v.rank() <= rank
    && std::ranges::all_of(v.known->dims, [](auto extent) { return extent == 1; });
}

} // namespace

double combine_whole(arithmetic how, double a, double b) {
  const auto left = onnx_constant::batches(a);
  const auto right = onnx_constant::batches(b);
  const auto unknown = std::numeric_limits<double>::quiet_NaN();
  switch (how) {
  case arithmetic::add:
  case arithmetic::subtract:
    return (left != 0) == (right != 0) || a == 0 || b == 0 ? apply(how, a, b) : unknown;
  case arithmetic::multiply:
    return left != 0 && right != 0 ? unknown : a * b;
  case arithmetic::divide:
    if (left == 0 && right == 0)
      return std::trunc(a / b);
    if (right != 0)
      return a == 0 || (left != 0 && left % right == 0) ? a / b : unknown;
    return std::trunc(b) == b && b != 0 && left % onnx_integer(b) == 0 ? a / b : unknown;
  case arithmetic::maximum:
  case arithmetic::minimum:
    return (left == 0 && right == 0) || a == b ? apply(how, a, b) : unknown;
  }
  return unknown;
}

onnx_value unfolded(onnx_value v) {
  v.merged.clear();
  return v;
}

std::vector<double> extents_of(const onnx_value& v) {
  std::vector<double> apart;
  for (const auto extent : v.dims())
    apart.push_back(extent == onnx_constant::batch ? onnx_constant::batch_size
                                                   : static_cast<double>(extent));
  if (v.merged.empty())
    return apart;
  std::vector<double> result;
  auto next = apart.begin();
  for (const auto count : v.merged) {
    double product = 1;
    for (std::size_t i = 0; i < count; ++i)
      product *= *next++;
    result.push_back(product);
  }
  return result;
}

std::vector<std::int64_t> onnx_value::dims() const {
  if (known)
    return known->dims;
  auto result = x.shape().extents();
  if (has_batch())
    std::rotate(result.begin(), result.begin() + 1,
                result.begin() + static_cast<std::ptrdiff_t>(batch_at) + 1);
  return result;
}

std::size_t onnx_value::graph_axis(std::size_t axis) const {
  if (!has_batch() || axis > batch_at)
    return axis;
  return axis == batch_at ? 0 : axis + 1;
}

shape in_graph_order(const std::vector<std::int64_t>& dims, std::size_t batch_at) {
  auto result = dims;
  std::rotate(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(batch_at),
              result.begin() + static_cast<std::ptrdiff_t>(batch_at) + 1);
  return shape{std::move(result)};
}

expression to_tensor(const onnx_value& v, graph& g) {
  if (!v.known)
    return v.x;
  const auto& c = *v.known;
  if (c.type != onnx_constant::kind::real)
    throw input_error("a tensor of whole numbers, of shape " + shape_text(c.dims)
                      + ", takes part in a computation with real ones");
  const bool batch = std::ranges::find(c.dims, onnx_constant::batch) != c.dims.end();
  const auto dims = batch ? in_graph_order(c.dims, v.batch_at) : shape{c.dims};
  if (c.uniform())
    return g.constant(c.values[0], dims);
  if (!v.made->valid())
    *v.made = g.constant(c.values, shape{onnx_dims_of_a_sample(dims.extents())});
  return expand(*v.made, dims);
}

onnx_value as_tensor(const onnx_value& v, graph& g) {
  return v.known ? onnx_value{to_tensor(v, g), v.batch_at} : v;
}

shape common_shape(const shape& a, const shape& b) {
  auto result = a.extents();
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i] == 1)
      result[i] = b[i];
    if (b[i] != 1 && b[i] != result[i])
      throw input_error("shapes " + to_string(a) + " and " + to_string(b) + " do not fit");
  }
  return shape{std::move(result)};
}

expression expand(expression x, const shape& dims) {
  if (x.shape() == dims)
    return x;
  auto extents = x.shape().extents();
  if (!x.shape().has_batch() && x.shape().elements() == 1)
    return broadcast(reshape(x, {}), dims);
  if (extents.size() != dims.rank())
    throw input_error(describe(x) + " cannot be expanded to " + to_string(dims));
  for (auto axis = extents.size(); axis-- > (dims.has_batch() ? 1U : 0U);) {
    if (extents[axis] == dims[axis])
      continue;
    if (extents[axis] != 1)
      throw input_error(describe(x) + " cannot be expanded to " + to_string(dims));
    x = repeat(x, extents, axis, dims[axis]);
    extents[axis] = dims[axis];
  }
  if (!dims.has_batch() || x.shape().has_batch())
    return x;
  if (extents[0] != 1)
    throw input_error(describe(x) + " cannot be expanded to " + to_string(dims));
  const auto n = product(extents, 0, extents.size());
  return reshape(broadcast_leading(reshape(x, {n}), {shape::batch, n}), dims);
}

onnx_operands aligned(const onnx_value& a, const onnx_value& b, graph& g) {
  // A constant with a batch is repeated for each sample, unless the other operand has the batch.
  const auto repeats = [](const onnx_value& x, const onnx_value& other) {
    return x.known && !other.has_batch()
      && std::ranges::find(x.known->dims, onnx_constant::batch) != x.known->dims.end();
  };
  if (repeats(a, b) || repeats(b, a))
    return aligned(repeats(a, b) ? as_tensor(a, g) : a, repeats(b, a) ? as_tensor(b, g) : b, g);
  const auto rank = std::max(a.rank(), b.rank());
  const bool batch = a.has_batch() || b.has_batch();
  const auto& leader = a.has_batch() ? a : b;
  const auto batch_at = batch ? leader.batch_at + rank - leader.rank() : 0;
  onnx_operands result;
  result.a = align(a, rank, batch_at, batch, g);
  result.b = align(b, rank, batch_at, batch, g);
  result.batch_at = batch_at;
  return result;
}

onnx_constant combine(const onnx_constant& a, const onnx_constant& b,
                      const std::function<double(double, double)>& f, std::size_t limit) {
  onnx_constant result;
  result.type = a.type;
  const auto rank = std::max(a.dims.size(), b.dims.size());
  auto left = a.dims;
  auto right = b.dims;
  left.insert(left.begin(), rank - left.size(), 1);
  right.insert(right.begin(), rank - right.size(), 1);
  for (std::size_t i = 0; i < rank; ++i) {
    const auto extent = left[i] == 1 ? right[i] : left[i];
    if (right[i] != 1 && right[i] != extent)
      throw input_error("shapes " + shape_text(a.dims) + " and " + shape_text(b.dims)
                        + " do not fit");
    result.dims.push_back(extent);
  }
  if (a.uniform() && b.uniform()) {
    result.values = {f(a.values[0], b.values[0])};
    return result;
  }
  const auto n = result.elements();
  if (n > limit)
    throw input_error("a constant of shape " + shape_text(result.dims)
                      + " would be computed, which is too large");
  const auto extents = onnx_dims_of_a_sample(result.dims);
  left = onnx_dims_of_a_sample(std::move(left));
  right = onnx_dims_of_a_sample(std::move(right));
  const auto index = [&](std::size_t i, const std::vector<std::int64_t>& dims) {
    std::size_t position = 0;
    std::size_t stride = 1;
    for (auto axis = rank; axis-- > 0;) {
      const auto extent = static_cast<std::size_t>(extents[axis]);
      position += dims[axis] == 1 ? 0 : stride * (i % extent);
      stride *= static_cast<std::size_t>(dims[axis]);
      i /= extent;
    }
    return position;
  };
  result.values.resize(n);
  for (std::size_t i = 0; i < n; ++i)
    result.values[i] = f(a.at(index(i, left)), b.at(index(i, right)));
  return result;
}

onnx_value combine(arithmetic how, const onnx_value& a, const onnx_value& b, graph& g,
                   std::size_t limit) {
  if (a.known && b.known) {
    const bool whole = a.known->type == onnx_constant::kind::integer;
    const auto f = [&](double x, double y) {
      return whole ? combine_whole(how, x, y) : apply(how, x, y);
    };
    return combine(*a.known, *b.known, f, limit);
  }
  if (is_number(b, a.rank()))
    if (const auto x = with_number(how, a.x, b.known->values[0], false); x.valid())
      return {x, a.batch_at};
  if (is_number(a, b.rank()))
    if (const auto x = with_number(how, b.x, a.known->values[0], true); x.valid())
      return {x, b.batch_at};
  const auto [x, y, batch_at] = aligned(a, b, g);
  const auto dims = common_shape(x.shape(), y.shape());
  if (x.shape() == dims)
    if (const auto result = with_vector(how, x, y); result.valid())
      return {result, batch_at};
  const bool commutes = how != arithmetic::subtract && how != arithmetic::divide;
  if (commutes && y.shape() == dims)
    if (const auto result = with_vector(how, y, x); result.valid())
      return {result, batch_at};
  const auto left = expand(x, dims);
  return {apply(how, left, expand(y, dims)), batch_at};
}

} // namespace troupe
