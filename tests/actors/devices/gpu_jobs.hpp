#pragma once

#include "actors/checkpoint/checkpoint.hpp"
#include "actors/model/job_context.hpp"
#include "actors/output/run_report.hpp"
#include "actors/storage/storage.hpp"
#include "kernels/devices/device_executor.hpp"
#include "messages/proto/job.pb.h"
#include "tests/kernels/cuda/counting_device.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Small jobs that train on the digits, and runs of these jobs on simulated GPUs.
namespace troupe::test {

/// Which calls of a device fail: for each kind, the number of the call. By default, no call fails.
struct faults {
  std::size_t allocations = ~std::size_t{0};
  /// Later products fail, too. A recording that fails once would not end a run.
  std::size_t products = ~std::size_t{0};
  /// Copies to the host.
  std::size_t copies = ~std::size_t{0};
  /// Copies to the device.
  std::size_t copies_in = ~std::size_t{0};
  /// The number of a call that opens a GPU, counted over all GPUs. Only the GPU that would be
  /// opened by this call fails.
  std::size_t opens = ~std::size_t{0};
  /// True: GPUs cannot access each other's memory.
  bool no_peers = false;
  /// Not a fault: the seed of the order in which the device's streams run (see simulated_device).
  std::optional<std::uint64_t> order = 3;
};

/// A machine with this number of GPUs.
std::shared_ptr<const gpu_set> gpus(std::size_t count, const faults& when = {});

inline const std::string mlp = "model={ layer { dense { units: 12 activation: RELU } } "
                               "layer { dropout { rate: 0.25 } } layer { dense { units: 10 } } "
                               "loss: SOFTMAX_CROSS_ENTROPY }";
inline const std::string cnn =
  "model={ layer { conv2d { filters: 3 kernel: 5 stride: 4 bias: false } } "
  "layer { batch_norm {} } layer { activation: RELU } layer { max_pool { kernel: 2 } } "
  "layer { flatten {} } layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";
inline const std::string lstm =
  "model={ layer { reshape { dims: 28 dims: 28 } } layer { lstm { hidden: 6 last: true } } "
  "layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";
inline const std::string both_ways = "model={ layer { reshape { dims: 28 dims: 28 } } "
                                     "layer { gru { hidden: 5 bidirectional: true last: true } } "
                                     "layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";
inline const std::string normalized_together =
  "model={ layer { flatten {} } layer { dense { units: 12 } } "
  "layer { batch_norm { sync: true } } layer { activation: RELU } layer { dense { units: 10 } } "
  "loss: SOFTMAX_CROSS_ENTROPY }";
inline const std::string on_gpu = "device[0]=/job:worker/task:*/device:GPU:0";
inline const std::string on_gpu_too = "device[1]=/job:worker/task:*/device:GPU:0";

proto::Job job_with(const std::string& model, const std::vector<std::string>& more);

struct outcome {
  run_summary summary;
  std::vector<float> weights;
  std::vector<std::string> notices;
  std::string metrics;
  /// Number of kernel launches.
  std::size_t launches = 0;
};

/// Runs the job in a simulation. Jobs with parameter servers have two of them.
outcome train(const proto::Job& job, std::size_t workers, std::shared_ptr<const gpu_set> devices,
              std::uint64_t seed = 1, bool evaluator = false, bool one_node = false);

/// Runs the job in one process. The workers of a ring then add up their gradients on their GPUs.
inline outcome train_together(const proto::Job& job, std::size_t workers,
                              std::shared_ptr<const gpu_set> devices, std::uint64_t seed = 1) {
  return train(job, workers, std::move(devices), seed, false, true);
}

/// Counts all copies between host and GPU in a run. Checks that counting did not change the
/// weights.
traffic traffic_of(const proto::Job& job, std::size_t workers, bool one_node = false);

/// The largest difference between two elements. NaN if an element is NaN.
double distance(const std::vector<float>& a, const std::vector<float>& b);

/// The text of the device_error that `body` throws, or "(no device_error)".
std::string device_error_of(const std::function<void()>& body);

std::shared_ptr<const job_context> context_of(const proto::Job& job);

/// Loads the checkpoint `name` from the files of a run of the job.
std::shared_ptr<const checkpoint> load(memory_storage& files, const proto::Job& job,
                                       const std::string& name);

} // namespace troupe::test
