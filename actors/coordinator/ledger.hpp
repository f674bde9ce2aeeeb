#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// What a worker itself has counted.
struct worker_account {
  std::uint32_t worker = 0;
  std::uint64_t incarnation = 0;
  /// Gradients that the worker has started, and gradients that it gave back with their lease (a
  /// range of samples to train).
  std::uint64_t produced = 0;
  std::uint64_t requeued = 0;
  /// True if the worker was lost before its final message. Then only gradients that reached a shard
  /// or rank are known.
  bool vanished = false;
};

/// The coordinator's account of leases.
struct lease_account {
  /// Number of samples to train: records x epochs.
  std::uint64_t expected = 0;
  std::uint64_t leased = 0;
  std::uint64_t released = 0;
  std::uint64_t committed = 0;
  /// For each shard: number of samples whose gradient did not reach the shard, because the worker
  /// was lost while sending. Empty if no shard has missed any.
  std::vector<std::uint64_t> lost = {};
  /// Samples whose gradient came too late and that are not trained again.
  std::uint64_t dropped = 0;
};

/// What happened to every gradient of a run. Each gradient counts once per shard or rank.
struct ledger {
  std::uint64_t produced = 0;
  std::uint64_t applied = 0;
  /// Rejected because they were too old or came too late.
  std::uint64_t rejected_stale = 0;
  std::uint64_t requeued = 0;
  std::uint64_t lost = 0;
  /// Left out because they were not finite.
  std::uint64_t quarantined = 0;
  /// Gradients of live workers that some shards applied and other shards did not. This is an error
  /// in troupe.
  std::uint64_t split = 0;
  /// Messages that arrived again and were recognized.
  std::uint64_t duplicates = 0;
  /// Mean staleness of the applied parts: the number of updates between reading the weights and
  /// applying the gradient.
  double staleness_mean = 0;
  /// Descriptions of counts that do not match; empty if all counts match.
  std::vector<std::string> problems;

  bool balanced() const noexcept { return problems.empty(); }
};

/// Balances three independent counts: the gradients that workers produced, the decisions of shards
/// or ranks (one report each), and the samples that the coordinator leased and committed. Every
/// part must have ended in exactly one state.
ledger balance(const std::vector<worker_account>& workers,
               const std::vector<proto::Report>& reports, const lease_account& leases);

} // namespace troupe
