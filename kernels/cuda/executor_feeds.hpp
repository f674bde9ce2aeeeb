#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>

// Internal to the executor: the feeds of batches in device memory.

namespace troupe::cuda {

struct executor_state;

/// Allocates memory for max_rows samples of each feed that the plan reads.
void allocate_feeds(executor_state& s);

/// Copies the feeds of a run to the device, except for feeds that were announced and have already
/// been copied.
void copy_feeds(executor_state& s, const run_arguments<float>& arguments);

/// Copies the feeds of the next run to the device, while the submitted run computes. The device has
/// two sets of feeds. This function writes to the set that the submitted run does not read. The
/// host must have waited for all earlier runs.
void copy_announced(executor_state& s, const announced_feeds<float>& next);

/// Bytes that feeds take in device memory. They take the same number of bytes of pinned memory.
std::size_t feed_bytes(const plan& what);

} // namespace troupe::cuda
