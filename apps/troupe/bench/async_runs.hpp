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

/// On the virtual clock, that of a gradient.
inline constexpr std::chrono::nanoseconds gradient_time = std::chrono::milliseconds{1};

/// Trains with the actors of a production run on one thread, under a virtual clock on which each
/// gradient takes one unit of time (a slow worker's: five). Workers begin one after another, so
/// that they take turns, and the mean staleness is nearly W - 1. The same numbers on every machine.
///
/// A run whose numbers are no longer finite is a result (`not_finite`). Any other failure, an
/// unbalanced ledger, or a gradient on which shards decided differently is an exception.
run_summary run_in_turns(const proto::Job& job, const job_data& data, const async_cluster& where);

struct counted_run {
  run_summary summary;
  /// Of all workers, to each other.
  std::uint64_t bytes = 0;
  /// The same in one all-reduce of gradients or weights, the median of all.
  std::uint64_t bytes_at_once = 0;
};

/// Trains in the same way with a node per task, and counts what the workers of a ring send to each
/// other. Without parameter shards.
/// @throws as run_in_turns
counted_run run_replicas(const proto::Job& job, const job_data& data, std::uint32_t workers);

struct timed_run {
  run_summary summary;
  /// Evaluations within epochs and at their ends, in order.
  std::vector<epoch_report> evaluations;
};

/// Trains on threads, in real time, with no worker or always the same one slow. Each worker's batch
/// is ready `delay` after its previous one (a slow worker's: five times that), as if it took that
/// long to compute.
/// @throws as run_in_turns, also if numbers are not finite
timed_run run_on_threads(const proto::Job& job, const job_data& data, const async_cluster& where,
                         std::chrono::microseconds delay = {});

} // namespace troupe::bench
