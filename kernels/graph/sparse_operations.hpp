#pragma once

#include "kernels/graph/operations.hpp"

namespace troupe {

// Products with a sparse matrix x (batch, n): a placeholder of type dtype::sparse, fed as
// compressed rows (kernels/cpu/executor.hpp, sparse_rows). Only these operations accept one.
//
// The weight is (n, units): each feature has a row. In a dense layer, each feature has a column. If
// a feature does not occur in a batch, its row is not read, and only zeros are written for it. The
// gradient is *row-sparse*: plan::row_sparse_gradients() lists these parameters, and the feeds that
// name their rows. Work: entries of the batch times units.

/// x W: x sparse (batch, n), W (n, units). Result (batch, units). A column of x outside 0 .. n - 1
/// makes its row of the result NaN. A column that occurs twice in a row counts twice.
expression sparse_matmul(expression x, expression weight);

/// x^T g: x sparse (batch, n), g (batch, units). Result (n, units): the gradient of sparse_matmul
/// with respect to W. A row is 0 if its column does not occur in x.
expression sparse_matmul_gradient(expression x, expression g);

/// Like dense_layer, but for sparse features: activation(x W + b) with "NAME.weight" (n, units),
/// the transpose of a dense layer's weight, and "NAME.bias" (units). Weights start Glorot-uniform.
expression sparse_dense_layer(expression x, const std::string& name, std::int64_t units,
                              activation how = activation::none, bool bias = true);

} // namespace troupe
