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

/// Copies the announced dense feeds of the next run to the device, while the submitted run
/// computes. They go to the set of feeds that the submitted run does not read. Does nothing if no
/// batch is announced, if its feeds have already been copied, if it has more rows than the plan
/// allows, or if the plan has no gradients (there is then only one set). The host must have waited
/// for all runs before the submitted one.
void copy_announced(executor_state& s, const announced_feeds<float>& next);

/// Bytes that feeds take in device memory. They take the same number of bytes of pinned memory.
std::size_t feed_bytes(const plan& what);

} // namespace troupe::cuda
