#pragma once

#include "kernels/graph/operations.hpp"

namespace troupe {

// Products with a sparse matrix x (batch, n). x is a placeholder of type dtype::sparse, and is fed
// as compressed rows (kernels/cpu/executor.hpp, sparse_rows). Only the operations in this file
// accept a sparse input.
//
// The weight has the shape (n, units), with one row per feature. (The weight of a dense layer has
// one column per feature.) If a feature does not occur in a batch, its row of the weight is not
// read, and its row of the gradient is 0. Such a gradient is called row-sparse:
// plan::row_sparse_gradients() lists these parameters, and the feeds that select their rows. The
// work is proportional to the number of entries in the batch times `units`.

/// The product x W of a sparse x (batch, n) and the weight W (n, units). Result: (batch, units). If
/// a row of x has a column outside 0 .. n - 1, that row of the result is NaN. If a row has two
/// entries in the same column, both are multiplied and added up.
expression sparse_matmul(expression x, expression weight);

/// The gradient of sparse_matmul with respect to W: x^T g, where x (batch, n) is sparse and g is
/// (batch, units). Result: (n, units). Row i is 0 if column i does not occur in x.
expression sparse_matmul_gradient(expression x, expression g);

/// Like dense_layer, with sparse features: activation(x W + b). The variables are "NAME.weight"
/// (n, units), which is the transpose of a dense layer's weight, and, if `bias` is true,
/// "NAME.bias" (units). Weights start with Glorot-uniform values, biases with zeros.
expression sparse_dense_layer(expression x, const std::string& name, std::int64_t units,
                              activation how = activation::none, bool bias = true);

} // namespace troupe
