#pragma once

#include "kernels/graph/operations.hpp"

namespace troupe {

// Products with a sparse matrix x (batch, n): a placeholder of type dtype::sparse, fed as
// compressed rows (kernels/cpu/executor.hpp, sparse_rows). Only these operations take one.
//
// The weight has a row per feature, (n, units), where a dense layer has a column. Rows whose
// feature does not occur in a batch are then not read, and only zeros are written for them. The
// gradient is *row-sparse*: plan::row_sparse_gradients() lists these parameters, and the feeds that
// name their rows. Work: entries of the batch times units.

/// x W: x sparse (batch, n), W (n, units). Result (batch, units). A column of x outside 0 .. n - 1
/// makes its row of the result NaN. A column that occurs twice in a row counts twice.
expression sparse_matmul(expression x, expression weight);

/// x^T g: x sparse (batch, n), g (batch, units). Result (n, units): the gradient of the above with
/// respect to W. Rows whose column does not occur in x are 0.
expression sparse_matmul_gradient(expression x, expression g);

/// As dense_layer, on sparse features: activation(x W + b) with "NAME.weight" (n, units), which is
/// the transpose of a dense layer's, and "NAME.bias" (units). Weights start Glorot-uniform.
expression sparse_dense_layer(expression x, const std::string& name, std::int64_t units,
                              activation how = activation::none, bool bias = true);

} // namespace troupe
