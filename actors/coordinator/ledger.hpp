#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// A worker's own account.
struct worker_account {
  std::uint32_t worker = 0;
  std::uint64_t incarnation = 0;
  /// Gradients started, and gradients given back with their lease.
  std::uint64_t produced = 0;
  std::uint64_t requeued = 0;
  /// The worker was lost before its final message. Only gradients that reached a shard or rank are
  /// known.
  bool vanished = false;
};

/// The coordinator's account of leases.
struct lease_account {
  /// Records x epochs.
  std::uint64_t expected = 0;
  std::uint64_t leased = 0;
  std::uint64_t released = 0;
  std::uint64_t committed = 0;
  /// Per shard: samples whose gradient did not reach it, because their worker was lost while
  /// sending. Empty if there are none.
  std::vector<std::uint64_t> lost = {};
  /// Samples whose gradient came too late and that are not trained again.
  std::uint64_t dropped = 0;
};

/// The fate of every gradient of a run, counted in parts (gradient x shard or rank).
struct ledger {
  std::uint64_t produced = 0;
  std::uint64_t applied = 0;
  /// Too old, or too late.
  std::uint64_t rejected_stale = 0;
  std::uint64_t requeued = 0;
  std::uint64_t lost = 0;
  /// Not finite, therefore left out.
  std::uint64_t quarantined = 0;
  /// Gradients of live workers that some shards applied and others did not: an error in admission.
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
