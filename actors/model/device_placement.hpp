#pragma once

#include "messages/names.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Reads Job.device, which says on which device each task computes.

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

/// An entry of Job.device. It says that some tasks compute on a device.
struct device_entry {
  job_kind job = job_kind::worker;
  /// The number of the task. Nothing if the entry is for all tasks of the kind `job`.
  std::optional<std::uint32_t> task;
  device_name device;
};

/// Reads "/job:worker/task:1/device:GPU:0", or `task:*`. The names of jobs are those that cluster
/// files use, so `chief` and `master` mean the coordinator. Throws input_error for other forms.
device_entry parse_device(const std::string& text);

/// The device of a task: the device of the last entry that names the task. If no entry names it,
/// the CPU. The job must be valid.
device_name device_of(const proto::Job& job, const task_name& task);

} // namespace troupe
