#pragma once

#include "actors/model/data_builder.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::bench {

/// The results of a job that TensorFlow trains with its asynchronous ParameterServerStrategy.
struct tensorflow_result {
  std::string version;
  /// Test accuracy for each seed 1, 2, ...
  std::vector<double> accuracies;
};

/// Trains a job in a Python process. The job has dense layers with rectifiers, momentum, warm-up
/// and a cosine schedule. Each worker reads the weights when it begins a batch, and applies its
/// update when the batch is done.
/// @throws input_error if `python` (see `pythons`) has no TensorFlow, std::runtime_error if the
/// process fails.
tensorflow_result run_tensorflow(const std::string& python, const proto::Job& job,
                                 const job_data& data, std::uint32_t workers, std::uint32_t seeds);

} // namespace troupe::bench
