#pragma once

#include "messages/proto/job.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Which device a task computes on: Job.device.

namespace troupe {

/// A device of a host. `index` counts the GPUs of the host from 0; there is only one CPU.
struct device_name {
  bool gpu = false;
  std::uint32_t index = 0;

  friend bool operator==(const device_name&, const device_name&) = default;
};

/// "CPU:0" or "GPU:1".
std::string to_string(const device_name& x);

/// An entry of Job.device: these tasks compute on this device.
struct device_entry {
  /// Nothing: all workers.
  std::optional<std::uint32_t> worker;
  device_name device;
};

/// Reads "/job:worker/task:1/device:GPU:0", or `task:*`. Throws input_error for other forms, and
/// for tasks that can only use a CPU.
device_entry parse_device(const std::string& text);

/// The device of a worker: from the last entry that matches it, otherwise the CPU. The job must be
/// valid.
device_name device_of_worker(const proto::Job& job, std::uint32_t worker);

} // namespace troupe
