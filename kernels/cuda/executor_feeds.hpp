#pragma once

#include "kernels/cpu/executor.hpp"
#include "kernels/plan/plan.hpp"

#include <cstddef>

// Internal to the executor: the feeds of batches in device memory.

namespace troupe::cuda {

struct executor_state;

/// Allocates memory for max_rows samples of each feed that the plan reads.
void allocate_feeds(executor_state& s);

/// Copies the feeds of a run to the device. Feeds that copy_announced() has already copied are not
/// copied again.
void copy_feeds(executor_state& s, const run_arguments<float>& arguments);

/// Copies the dense feeds of the announced next batch (run_arguments::next) to the device, while
/// the submitted run computes. The copies go to the set of feeds that the submitted run does not
/// read. The host must have waited for all earlier runs. Does nothing in these cases:
/// - no batch is announced, or its feeds have already been copied;
/// - the batch has more rows than the plan allows;
/// - the plan has no gradients, so that it has only one set of feeds.
void copy_announced(executor_state& s, const announced_feeds<float>& next);

/// Bytes that feeds take in device memory. Feeds take as many bytes of pinned memory.
/// @param sparse_entries the number of entries of a batch in each sparse feed; 0 to leave out the
/// memory of entries
std::size_t feed_bytes(const plan& what, std::size_t sparse_entries);

} // namespace troupe::cuda
