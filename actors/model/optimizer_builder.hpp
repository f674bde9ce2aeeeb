#pragma once

#include "kernels/optimizers/optimizer.hpp"
#include "kernels/optimizers/schedule.hpp"
#include "messages/proto/job.pb.h"

namespace troupe {

/// The update rule of a job.
/// @throws input_error naming the field when a value makes no sense.
optimizer build_optimizer(const proto::Optimizer& options);

/// The learning rate of a job, whose number of epochs a cosine schedule needs.
/// @throws input_error naming the field when a value makes no sense.
learning_rate build_learning_rate(const proto::Job& job);

} // namespace troupe
