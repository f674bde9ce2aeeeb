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
  /// Gradients begun, and gradients given back with their lease.
  std::uint64_t produced = 0;
  std::uint64_t requeued = 0;
  /// The worker was lost without a final message: of its gradients only those that others saw are
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
  /// Per shard: samples of gradients that it missed because their worker vanished while sending;
  /// empty for none.
  std::vector<std::uint64_t> lost = {};
  /// Samples of batches whose gradient came too late and that are not trained again.
  std::uint64_t dropped = 0;
};

/// The outcome of all gradients of a run, in parts (gradient x shard or rank).
struct ledger {
  std::uint64_t produced = 0;
  std::uint64_t applied = 0;
  /// Too old, or too late.
  std::uint64_t rejected_stale = 0;
  std::uint64_t requeued = 0;
  std::uint64_t lost = 0;
  /// Not finite, and left out.
  std::uint64_t quarantined = 0;
  /// Gradients of living workers that some shards applied and others did not: admission went wrong.
  std::uint64_t split = 0;
  /// Repeated messages that were recognized.
  std::uint64_t duplicates = 0;
  /// Mean over the applied parts of the updates between reading weights and applying the gradient.
  double staleness_mean = 0;
  /// Inconsistencies, as texts; empty if all counts add up.
  std::vector<std::string> problems;

  bool balanced() const noexcept { return problems.empty(); }
};

/// Balances three independent counts: what workers produced, what shards or ranks decided (one
/// report each), and what the coordinator leased and committed. Every part must have ended in
/// exactly one state.
ledger balance(const std::vector<worker_account>& workers,
               const std::vector<proto::Report>& reports, const lease_account& leases);

} // namespace troupe
