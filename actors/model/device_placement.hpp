#pragma once

#include "messages/names.hpp"
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

/// Reads "GPU:1" or "CPU:0". Throws input_error for other forms.
device_name parse_device_name(const std::string& text);

/// An entry of Job.device: these tasks compute on this device.
struct device_entry {
  job_kind job = job_kind::worker;
  /// Nothing: all tasks of the job.
  std::optional<std::uint32_t> task;
  device_name device;
};

/// Reads "/job:worker/task:1/device:GPU:0", or `task:*`. The jobs are those of a cluster file:
/// `chief` and `master` mean the coordinator. Throws input_error for other forms.
device_entry parse_device(const std::string& text);

/// The device of a task: that of the last entry that names it, or the CPU. The job is valid.
device_name device_of(const proto::Job& job, const task_name& task);

} // namespace troupe
