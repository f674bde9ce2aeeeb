#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "kernels/optimizers/schedule.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <vector>

namespace troupe {

/// Builds the update rule of a job.
/// @throws input_error that names the field if a value makes no sense.
optimizer build_optimizer(const proto::Optimizer& options);

/// The update rule for the parameters of a group: the job's rule with the group's weight decay, L1
/// penalty and learning rate.
struct group_rule {
  optimizer rule;
  /// Factor on the learning rate.
  double rate_scale = 1;
  bool operator==(const group_rule&) const = default;
};

/// The groups of a job's optimizer, and the tensors in each group.
struct parameter_groups {
  /// The rules of the groups, in the order of the job. The last one is the optimizer's own rule,
  /// for tensors without a group.
  std::vector<group_rule> rules;
  /// For each tensor of the layout, in order: its position in `rules`.
  std::vector<std::size_t> of_tensor;
};

/// A trainable tensor belongs to the first group that matches it.
/// @throws input_error with a line for each group that gets no tensor. The group matches no
/// parameter (the error suggests similar names), or only parameters that are not trained, or only
/// parameters that belong to earlier groups
parameter_groups build_groups(const proto::Optimizer& options, const layout& parameters);

/// Builds the learning-rate schedule of a job. A cosine schedule needs the number of epochs.
/// @throws input_error that names the field if a value makes no sense.
learning_rate build_learning_rate(const proto::Job& job);
/// Like build_learning_rate(), but does not check the values, for a job that is being validated.
learning_rate unchecked_learning_rate(const proto::Job& job);

} // namespace troupe
