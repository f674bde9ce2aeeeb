#pragma once

#include "kernels/graph/graph.hpp"

#include <cstdint>

namespace troupe {

// Batch and group normalization. Tensors have the shape (batch, C, ...), as in PyTorch: dimension 1
// contains the channels, and all further dimensions are positions. Each function throws
// input_error, with the names and shapes of the tensors, if shapes do not fit.

/// Multiplies channel c of x (batch, C, ...) by g[c]. g has shape (C).
expression multiply_channels(expression x, expression g);
/// The mean and the variance of each channel of x (batch, C, ...), over samples and positions.
/// Result: (2, C), the means and then the variances. The variance is the sum of squared differences
/// from the mean, divided by the number n of values. Mean and variance are 0 for a run without
/// rows. The result has no gradient, because the gradient of normalize_channels includes it.
///
/// If `all_workers` is true, mean and variance cover the samples of all workers that run the plan
/// together (run_arguments::on_sums), and node::key is 1. All results that are computed from them
/// then cover these samples, too.
expression channel_moments(expression x, bool all_workers = false);
/// (x - mean) / sqrt(variance + epsilon) for each channel. `moments` must be channel_moments(x).
/// The gradient with respect to x takes into account that the moments depend on x.
expression normalize_channels(expression x, expression moments, double epsilon = 1e-5);
/// The gradient of normalize_channels with respect to x. With y = normalize_channels(x, moments),
/// it is d sum(y * dy) / dx = (dy - mean(dy) - y mean(dy y)) / sqrt(variance + epsilon).
expression normalize_channels_gradient(expression dy, expression x, expression moments,
                                       double epsilon);
/// For graph::update_state: the means in `moments` times the number of samples of the run. Result:
/// (C).
expression summed_mean(expression moments);
/// For graph::update_state: the variances in `moments` times the number of samples of the run. The
/// variances have the divisor n - 1 instead of n, where n is samples * positions. If n is 1, the
/// variance is 0. Result: (C).
expression summed_variance(expression moments, std::int64_t positions);

/// The variables of a batch normalization (Ioffe and Szegedy, 2015). Each has shape (C).
struct batch_norm_variables {
  expression gain;
  expression bias;
  expression running_mean;
  expression running_variance;
};

/// Batch normalization for training: normalize_channels(x) * gain + bias. Also registers the mean
/// and variance of the batch as updates of running_mean and running_variance (graph::update_state).
/// If these two variables are frozen, the result is batch_norm_testing(): training then normalizes
/// like a test. Throws input_error if only one of the two is frozen. `all_workers`: see
/// channel_moments.
expression batch_norm(expression x, const batch_norm_variables& variables, double epsilon = 1e-5,
                      bool all_workers = false);
/// Batch normalization for testing: (x - running_mean) / sqrt(running_variance + epsilon) * gain +
/// bias.
expression batch_norm_testing(expression x, const batch_norm_variables& variables,
                              double epsilon = 1e-5);

/// Group normalization (Wu and He, 2018). Divides the channels of each sample into groups, and
/// normalizes each group over its channels and positions. Then multiplies by gain (C) and adds bias
/// (C). The number of channels must be a multiple of `groups`.
expression group_norm(expression x, expression gain, expression bias, std::int64_t groups,
                      double epsilon = 1e-5);

} // namespace troupe
