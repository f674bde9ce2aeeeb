#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>

// Internal to the executor: the feeds of batches in device memory.

namespace troupe::cuda {

struct executor_state;

/// Room for max_rows samples of each feed that the plan reads.
void allocate_feeds(executor_state& s);

/// Copies the feeds of a run, except those that were announced and are there already.
void copy_feeds(executor_state& s, const run_arguments<float>& arguments);

/// Copies announced feeds to the set that no run reads, beside the submitted work. The host has
/// waited for the runs before this one.
void copy_announced(executor_state& s, const announced_feeds<float>& next);

/// Bytes that feeds take in device memory, and pinned on the host.
std::size_t feed_bytes(const plan& what);

} // namespace troupe::cuda
