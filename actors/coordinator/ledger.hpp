#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// The counts of a worker itself.
struct worker_account {
  std::uint32_t worker = 0;
  std::uint64_t incarnation = 0;
  /// Number of gradients that the worker has started, and number of gradients that it gave back
  /// with their lease (a range of samples to train).
  std::uint64_t produced = 0;
  std::uint64_t requeued = 0;
  /// True if the worker was lost before it sent its final message. Then only the gradients that
  /// reached a shard or rank are known.
  bool vanished = false;
};

/// The coordinator's counts of samples.
struct lease_account {
  /// Number of samples to train: records x epochs.
  std::uint64_t expected = 0;
  std::uint64_t leased = 0;
  std::uint64_t released = 0;
  std::uint64_t committed = 0;
  /// For each shard: number of samples whose gradient did not reach the shard, because the worker
  /// was lost while it sent the gradient. Empty if every gradient reached every shard.
  std::vector<std::uint64_t> lost = {};
  /// Number of samples whose gradient came too late and that are not trained again.
  std::uint64_t dropped = 0;
};

/// The counts of what happened to all gradients of a run. Each gradient counts once per shard or
/// rank.
struct ledger {
  std::uint64_t produced = 0;
  std::uint64_t applied = 0;
  /// Gradients that were rejected because they were too old or came too late.
  std::uint64_t rejected_stale = 0;
  std::uint64_t requeued = 0;
  std::uint64_t lost = 0;
  /// Gradients that were left out because they were not finite.
  std::uint64_t quarantined = 0;
  /// Gradients of live workers that some shards applied and other shards did not. This is an error
  /// in troupe.
  std::uint64_t split = 0;
  /// Messages that arrived again and were recognized as repetitions.
  std::uint64_t duplicates = 0;
  /// Mean staleness of the applied gradients: the number of updates between reading the weights and
  /// applying the gradient.
  double staleness_mean = 0;
  /// Descriptions of counts that do not match; empty if all counts match.
  std::vector<std::string> problems;

  bool balanced() const noexcept { return problems.empty(); }
};

/// Checks that three independent counts agree. These are the gradients that workers produced, the
/// decisions of shards or ranks (one report each), and the samples that the coordinator leased and
/// committed. Every part of a gradient must have ended in exactly one state.
ledger balance(const std::vector<worker_account>& workers,
               const std::vector<proto::Report>& reports, const lease_account& leases);

} // namespace troupe
