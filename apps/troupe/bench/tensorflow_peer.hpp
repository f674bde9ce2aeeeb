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
  /// Test accuracies and seconds of training, one for each seed 1, 2, ...
  std::vector<double> accuracies;
  std::vector<double> seconds;
};

struct tensorflow_options {
  /// The Python interpreter: see pythons().
  std::string python;
  std::uint32_t workers = 2;
  /// 0 only checks that Python has TensorFlow.
  std::uint32_t seeds = 1;
  /// If true, the parameter server and each worker are processes, and compute each operation on one
  /// thread. The measured time does not contain the time in which workers compile their steps. If
  /// false, the parameter server and the workers are servers within one process.
  bool processes = false;
  /// Only with `processes`: the processor of each worker. If empty, the system chooses processors.
  std::vector<unsigned> processors = {};
  /// Number of steps that a worker makes for each request of the coordinator.
  std::uint32_t steps = 1;
};

/// Trains a job in a Python process. The job must consist of dense layers with rectifiers, and use
/// momentum, warm-up and a cosine schedule. Each worker reads the weights at the beginning of a
/// batch, and applies its update at the end of the batch.
/// @throws input_error if Python has no TensorFlow; its text says how to install it.
/// std::runtime_error if the process fails.
tensorflow_result run_tensorflow(const tensorflow_options& how, const proto::Job& job,
                                 const job_data& data);

} // namespace troupe::bench
