#pragma once

#include "kernels/graph/graph.hpp"

#include <cstdint>

namespace troupe {

// Batch and group normalization. Tensors are (batch, C, ...), as in PyTorch: channels are dimension
// 1, and all further dimensions are positions. Each function throws input_error if shapes do not
// fit, and names them.

/// x (batch, C, ...), channel c times g[c]. g (C).
expression multiply_channels(expression x, expression g);
/// (2, C): mean and variance of each channel of x (batch, C, ...) over samples and positions. The
/// variance is divided by the number n of values. Both are 0 for a run without rows. No gradient:
/// see normalize_channels. With `all_workers`, the moments cover the samples of all workers that
/// run the plan together (run_arguments::on_sums), and so do all results computed from them;
/// node::key is 1.
expression channel_moments(expression x, bool all_workers = false);
/// (x - mean) / sqrt(variance + epsilon) per channel, with moments = channel_moments(x). The
/// gradient takes into account that the moments depend on x.
expression normalize_channels(expression x, expression moments, double epsilon = 1e-5);
/// d sum(y * dy) / dx of the above: (dy - mean(dy) - y mean(dy y)) / sqrt(variance + epsilon).
expression normalize_channels_gradient(expression dy, expression x, expression moments,
                                       double epsilon);
/// (C): the means in `moments`, times the number of samples of the run. For graph::update_state.
expression summed_mean(expression moments);
/// (C): the variances in `moments`, but divided by n - 1 instead of n, times the number of samples
/// of the run; n = samples * positions. If n is 1, the variance is 0. For graph::update_state.
expression summed_variance(expression moments, std::int64_t positions);

/// The variables of a batch normalization (Ioffe and Szegedy, 2015), (C) each.
struct batch_norm_variables {
  expression gain;
  expression bias;
  expression running_mean;
  expression running_variance;
};

/// For training: normalize_channels(x) * gain + bias. The mean and variance of the batch are
/// registered as updates of the running ones. If the running ones are frozen, this is
/// batch_norm_testing: training then normalizes as tests do. Throws input_error if only one of them
/// is frozen. `all_workers`: see channel_moments.
expression batch_norm(expression x, const batch_norm_variables& variables, double epsilon = 1e-5,
                      bool all_workers = false);
/// For testing: (x - running_mean) / sqrt(running_variance + epsilon) * gain + bias.
expression batch_norm_testing(expression x, const batch_norm_variables& variables,
                              double epsilon = 1e-5);

/// Each sample's channels are divided into groups. x is normalized over each group and its
/// positions, times gain (C), plus bias (C) (Wu and He, 2018). The groups must divide the channels.
expression group_norm(expression x, expression gain, expression bias, std::int64_t groups,
                      double epsilon = 1e-5);

} // namespace troupe
