#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "kernels/optimizers/schedule.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <vector>

namespace troupe {

/// The update rule of a job.
/// @throws input_error naming the field when a value makes no sense.
optimizer build_optimizer(const proto::Optimizer& options);

/// How the parameters of a group are updated: the job's rule with a weight decay and an L1 penalty
/// of their own, at a rate of their own.
struct group_rule {
  optimizer rule;
  /// Of the learning rate.
  double rate_scale = 1;
  bool operator==(const group_rule&) const = default;
};

/// The groups of a job's optimizer, and which tensors they have.
struct parameter_groups {
  /// As in the job; behind them the optimizer itself, for tensors without a group.
  std::vector<group_rule> rules;
  /// Of each tensor of the layout, in its order: position in `rules`.
  std::vector<std::size_t> of_tensor;
};

/// The first group that matches a trainable tensor is its group.
/// @throws input_error, a line per group without a tensor: it matches no parameter (with names that
/// are near), none that is trained, or only those of groups before it
parameter_groups build_groups(const proto::Optimizer& options, const layout& parameters);

/// The learning rate of a job, whose number of epochs a cosine schedule needs.
/// @throws input_error naming the field when a value makes no sense.
learning_rate build_learning_rate(const proto::Job& job);

} // namespace troupe
