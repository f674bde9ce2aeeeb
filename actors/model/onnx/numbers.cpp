// ONNX's operators that are supported only for constants: positions, masks, shapes.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/operations.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace troupe {

namespace {

using position = std::vector<std::int64_t>;

/// Makes a constant of this shape. f computes each element from its position.
onnx_constant each(const onnx_node& node, onnx_constant::kind type, const position& dims,
                   const std::function<double(const position&)>& f) {
  onnx_constant result;
  result.type = type;
  result.dims = dims;
  const auto n = result.elements();
  if (n > node.limit() || std::ranges::find(dims, onnx_constant::batch) != dims.end())
    node.refuse("a constant of shape " + shape_text(dims)
                + " would be computed, which is too large, or depends on the batch");
  position at(dims.size(), 0);
  for (std::size_t i = 0; i < n; ++i) {
    result.values.push_back(f(at));
    for (auto axis = dims.size(); axis-- > 0 && ++at[axis] == dims[axis];)
      at[axis] = 0;
  }
  return result;
}

double element(const onnx_constant& c, const position& at) {
  std::size_t index = 0;
  for (std::size_t axis = 0; axis < at.size(); ++axis)
    index = index * static_cast<std::size_t>(c.dims[axis]) + static_cast<std::size_t>(at[axis]);
  return c.at(index);
}

template <expression (*on_tensor)(expression), double (*on_number)(double)>
void unary(onnx_node& node) {
  const auto& v = node.input(0);
  if (!v.known) {
    node.set({on_tensor(v.x), v.batch_at});
    return;
  }
  auto result = *v.known;
  if (result.type != onnx_constant::kind::real)
    node.refuse("the operand is not a tensor of real numbers");
  std::ranges::transform(result.values, result.values.begin(), on_number);
  node.set(std::move(result));
}

/// The largest whole number that is at most x.
expression floor_of(expression x) {
  const auto near = round(x);
  return near - greater(near, x);
}

/// The smallest whole number that is at least x.
expression ceiling_of(expression x) {
  return scale(floor_of(scale(x, -1)), -1);
}

double to_even(double x) {
  return std::isfinite(x) ? x - std::remainder(x, 1) : x;
}

/// The remainder of a division. It has the sign of the divisor. With the attribute fmod, it has the
/// sign of the dividend.
void modulo(onnx_node& node) {
  const bool like_c = node.integer("fmod", 0) != 0;
  const auto f = [&](double a, double b) {
    const auto k = onnx_constant::batches(a);
    if (k != 0 && onnx_constant::is_number(b)) {
      const auto n = std::trunc(b) == b ? onnx_integer(b) : 0;
      return n != 0 && k % n == 0 ? 0 : std::nan("");
    }
    if (k == 0 && a != 0 && onnx_constant::batches(b) != 0)
      return std::nan("");
    const auto rest = std::fmod(a, b);
    return !like_c && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  };
  node.set(combine(node.known(0, "dividend"), node.known(1, "divisor"), f, node.limit()));
}

/// Keeps the part above or below a diagonal of each matrix. All other elements become 0.
void triangle(onnx_node& node) {
  const auto c = node.known(0, "matrix");
  const bool upper = node.integer("upper", 1) != 0;
  const auto diagonal =
    node.has_input(1) ? node.integers_of(1, "diagonal") : std::vector<std::int64_t>{0};
  if (diagonal.size() != 1)
    node.refuse("the diagonal has " + std::to_string(diagonal.size()) + " numbers; expected one");
  const auto k = diagonal[0];
  const auto rank = c.dims.size();
  if (rank < 2)
    node.refuse("expected a matrix, found " + shape_text(c.dims));
  node.set(each(node, c.type, c.dims, [&](const position& at) {
    const auto right = at[rank - 1] - at[rank - 2];
    return (upper ? right >= k : right <= k) ? element(c, at) : 0;
  }));
}

/// Repeats a whole tensor along each dimension. A dimension of 1 that is repeated for each sample
/// becomes the batch.
void tile(onnx_node& node) {
  auto v = node.input(0);
  const auto repeats = elements_of(node.known(1, "repeats"), 64, node);
  auto dims = v.dims();
  if (repeats.size() != dims.size())
    node.refuse("expected a number of repeats for each dimension");
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const bool for_each_sample = repeats[i] == onnx_constant::batch_size;
    counts.push_back(for_each_sample ? 1 : onnx_integer(repeats[i]));
    if (!for_each_sample)
      continue;
    if (dims[i] != 1 || v.has_batch())
      node.refuse("dimension " + std::to_string(i) + " of " + shape_text(dims)
                  + " is repeated for each sample; expected a dimension of 1, and no batch");
    dims[i] = onnx_constant::batch;
    v = expanded(node, as_tensor(v, node.target()), dims);
  }
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (counts[i] < 1 || counts[i] > (std::int64_t{1} << 32))
      node.refuse("a dimension is repeated " + std::to_string(counts[i]) + " times");
    if (counts[i] != 1 && dims[i] == onnx_constant::batch)
      node.refuse("dimension " + std::to_string(i) + " is repeated, and is the batch");
    constexpr auto most = std::int64_t{1} << 48;
    if (dims[i] > most / counts[i])
      node.refuse("dimension " + std::to_string(i) + " would be larger than 2^48");
    dims[i] *= counts[i];
  }
  if (!v.known) {
    auto result = v;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (counts[i] == 1)
        continue;
      auto apart = result.dims();
      apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(i), 1);
      result = with_dims(node, result, apart);
      apart[i] = counts[i];
      result = expanded(node, result, apart);
      apart.erase(apart.begin() + static_cast<std::ptrdiff_t>(i));
      apart[i] = dims[i];
      result = with_dims(node, result, apart);
    }
    node.set(result);
    return;
  }
  const auto& c = *v.known;
  node.set(each(node, c.type, dims, [&](position at) {
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] %= c.dims[i];
    return element(c, at);
  }));
}

/// Replaces parts of a constant. Each row of the indices (along the last dimension) is the position
/// of a part.
void scatter(onnx_node& node) {
  auto result = node.known(0, "data");
  const auto& indices = node.known(1, "indices");
  const auto& updates = node.known(2, "updates");
  if (const auto how = node.text("reduction", "none"); how != "none")
    node.refuse("attribute \"reduction\" is \"" + how + "\"; expected none");
  const auto depth = indices.dims.empty() ? 0 : indices.dims.back();
  if (depth < 1 || static_cast<std::size_t>(depth) > result.dims.size())
    node.refuse("the indices, of shape " + shape_text(indices.dims) + ", do not fit the data, "
                + shape_text(result.dims));
  if (indices.elements() > node.limit() || updates.elements() > node.limit())
    node.refuse("the updates, of shape " + shape_text(updates.dims) + ", are too large");
  const auto data = result;
  if (data.elements() == 0) {
    if (updates.elements() != 0)
      node.refuse("the updates, of shape " + shape_text(updates.dims) + ", do not fit");
    node.set(std::move(result));
    return;
  }
  result = each(node, data.type, data.dims, [&](const position& at) { return element(data, at); });
  const auto behind = onnx_product(data.dims, static_cast<std::size_t>(depth), data.dims.size());
  const auto parts = static_cast<std::int64_t>(indices.elements()) / depth;
  if (static_cast<std::int64_t>(updates.elements()) != parts * behind)
    node.refuse("the updates, of shape " + shape_text(updates.dims) + ", do not fit");
  for (std::int64_t part = 0; part < parts; ++part) {
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < depth; ++i) {
      const auto extent = data.dims[static_cast<std::size_t>(i)];
      auto x = onnx_integer(indices.at(static_cast<std::size_t>(part * depth + i)));
      x += x < 0 ? extent : 0;
      if (x < 0 || x >= extent)
        node.refuse("an index is out of range");
      at = at * extent + x;
    }
    for (std::int64_t i = 0; i < behind; ++i)
      result.values[static_cast<std::size_t>(at * behind + i)] =
        updates.at(static_cast<std::size_t>(part * behind + i));
  }
  node.set(std::move(result));
}

} // namespace

void add_number_operators(onnx_operators& all) {
  all["Sin"] = {unary<sine, std::sin>, 7};
  all["Cos"] = {unary<cosine, std::cos>, 7};
  all["Floor"] = {unary<floor_of, std::floor>, 1};
  all["Ceil"] = {unary<ceiling_of, std::ceil>, 1};
  all["Round"] = {unary<round, to_even>, 11};
  all["Mod"] = {modulo, 10, "constants only"};
  all["Trilu"] = {triangle, 14, "constants only"};
  all["Tile"] = {tile, 1, "not along the batch, but a dimension of 1 can become the batch"};
  all["ScatterND"] = {scatter, 11, "constants only; no reduction"};
}

} // namespace troupe
