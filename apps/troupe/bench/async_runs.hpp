#pragma once

#include "actors/model/data_builder.hpp"
#include "actors/output/run_report.hpp"
#include "apps/troupe/bench/async_works.hpp"
#include "messages/proto/job.pb.h"

#include <chrono>
#include <cstdint>
#include <vector>

namespace troupe::bench {

/// A cluster in one process.
struct async_cluster {
  std::uint32_t workers = 1;
  std::uint32_t ps = 1;
  slowness slow = slowness::none;
};

inline constexpr int slow_factor = 5;

/// The time that a worker needs for a gradient, on the virtual clock of a simulation.
inline constexpr std::chrono::nanoseconds gradient_time = std::chrono::milliseconds{1};

/// Simulates a run: trains with the real actors, but on a single thread and with a virtual clock.
/// Each gradient takes gradient_time, and five times as long on a slow worker. Workers finish one
/// after the other, so with W workers the mean staleness is nearly W - 1. The numbers are the same
/// on every machine.
///
/// If numbers become infinite or NaN, the result says so (`not_finite`).
/// @throws std::runtime_error for any other failure; if gradients are lost; or if parameter servers
/// have decided differently about a gradient
run_summary run_in_turns(const proto::Job& job, const job_data& data, const async_cluster& where);

struct counted_run {
  run_summary summary;
  /// Bytes that all workers together send to each other.
  std::uint64_t bytes = 0;
  /// Bytes that all workers send to each other in one all-reduce of gradients or weights (the
  /// median of all all-reduces).
  std::uint64_t bytes_at_once = 0;
};

/// Trains like run_in_turns(), but with one node per task and without parameter servers. Counts the
/// bytes that the workers of a ring send to each other.
/// @throws like run_in_turns
counted_run run_replicas(const proto::Job& job, const job_data& data, std::uint32_t workers);

struct timed_run {
  run_summary summary;
  /// The evaluations within epochs and at the ends of epochs, in order.
  std::vector<epoch_report> evaluations;
};

/// Trains on threads in real time. If `where.slow` is not `none`, always the same worker is slow.
/// Each worker gets a batch only after `delay`, as if computing took that long; the slow worker
/// gets it after five times `delay`.
/// @throws like run_in_turns, and also if numbers are not finite
timed_run run_on_threads(const proto::Job& job, const job_data& data, const async_cluster& where,
                         std::chrono::microseconds delay = {});

} // namespace troupe::bench
