// ONNX's matrix products.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Multiplies each matrix of a (..., m, k) by b (k, n).
onnx_value times_matrix(const onnx_node& node, const onnx_value& a, expression b) {
  if (a.has_batch() && a.batch_at + 1 == a.rank())
    node.refuse("the sum would run over the batch");
  return {matmul(a.x, b), a.batch_at};
}

/// Matrix products with NumPy's broadcasting of all dimensions except the last two.
onnx_value batched(const onnx_node& node, const onnx_value& a, const onnx_value& b) {
  const auto [x, y, batch_at] = aligned(a, b, node.target());
  const auto rank = x.shape().rank();
  const bool batch = a.has_batch() || b.has_batch();
  if (batch && batch_at + 2 >= rank)
    node.refuse("the batch is a dimension of the matrices themselves");
  const auto leading = [&](expression e) {
    auto extents = e.shape().extents();
    extents.resize(rank - 2);
    return shape{std::move(extents)};
  };
  const auto common = common_shape(leading(x), leading(y)).extents();
  const auto spread = [&](expression e) {
    auto extents = common;
    extents.insert(extents.end(), {e.shape()[rank - 2], e.shape()[rank - 1]});
    return expand(e, shape{std::move(extents)});
  };
  const auto left = spread(x);
  return {batched_matmul(left, spread(y)), batch_at};
}

} // namespace

onnx_value matrix_product(const onnx_node& node, const onnx_value& left, const onnx_value& right) {
  auto a = as_tensor(left, node.target());
  auto b = as_tensor(right, node.target());
  const bool row = a.rank() == 1;
  const bool column = b.rank() == 1;
  if (a.rank() == 0 || b.rank() == 0)
    node.refuse("an operand is a single number");
  const auto with = [&](const onnx_value& v, std::vector<std::int64_t> dims) {
    return with_dims(node, v, dims);
  };
  if (row)
    a = with(a, {1, a.dims()[0]});
  if (column)
    b = with(b, {b.dims()[0], 1});
  auto result = b.rank() == 2 && !b.has_batch() ? times_matrix(node, a, b.x) : batched(node, a, b);
  auto dims = result.dims();
  if (column)
    dims.pop_back();
  if (row)
    dims.erase(dims.end() - (column ? 1 : 2));
  if (row || column)
    result = with_dims(node, result, dims);
  return result;
}

namespace {

void general_product(onnx_node& node) {
  const auto& a = node.input(0);
  const auto& b = node.input(1);
  const bool transpose_a = node.integer("transA", 0) != 0;
  const bool transpose_b = node.integer("transB", 0) != 0;
  if ((a.rank() != 2 && !node.is_apart()) || b.rank() != 2)
    node.refuse("expected two matrices, found " + shape_text(a.dims()) + " and "
                + shape_text(b.dims()));
  if (b.has_batch() || (a.has_batch() && (transpose_a || a.batch_at + 1 == a.rank())))
    node.refuse("the batch must be the rows of the result");
  auto y = matmul(node.tensor(0), node.tensor(1), transpose_a, transpose_b);
  if (const auto alpha = node.real("alpha", 1); alpha != 1)
    y = scale(y, alpha);
  const auto beta = node.real("beta", 1);
  if (node.version() < 7)
    node.ignore("broadcast");
  onnx_value result{y, a.batch_at};
  if (node.has_input(2) && beta != 0) { // a product with 0 would turn NaN and infinity into NaN
    onnx_constant factor;
    factor.values = {beta};
    const auto c =
      beta == 1 ? node.input(2) : node.combine(arithmetic::multiply, node.input(2), factor);
    result = node.combine(arithmetic::add, result, c);
  }
  node.set(result);
}

} // namespace

void add_linear_operators(onnx_operators& all) {
  add_einsum_operators(all);
  all["MatMul"] = {
    [](onnx_node& node) { node.set(matrix_product(node, node.input(0), node.input(1))); }, 1,
    "the batch is not a dimension of the matrices that is summed"};
  all["Gemm"] = {general_product, 1, "the batch is the rows of the result"};
}

} // namespace troupe
