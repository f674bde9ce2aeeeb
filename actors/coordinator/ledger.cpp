#include "actors/coordinator/ledger.hpp"

#include <algorithm>

namespace troupe {

namespace {

proto::Decided decided_by(const proto::Report& report, const worker_account& worker) {
  for (auto& x : report.decided())
    if (x.worker() == worker.worker && x.incarnation() == worker.incarnation)
      return x;
  return {};
}

/// The decisions of all shards or ranks about one worker's gradients. Each gradient is divided into
/// parts, one per shard or rank.
struct decisions {
  std::uint64_t applied = 0;
  std::uint64_t lost = 0;
  std::uint64_t quarantined = 0;
  /// Number of rejected gradients. The first shard decides whether a gradient is rejected, for all
  /// its parts. So each rejected gradient is counted once.
  std::uint64_t rejected = 0;
  /// Number of gradients with at least one part that reached its shard.
  std::uint64_t seen = 0;
  /// Number of gradients that at least one shard applied or quarantined; and the number of parts of
  /// these gradients that never reached their shard.
  std::uint64_t most = 0;
  std::uint64_t missing = 0;
  bool same = true;

  std::uint64_t all(std::uint64_t parts) const noexcept {
    return applied + lost + quarantined + rejected * parts;
  }
};

/// Number of gradients whose samples count as trained.
std::uint64_t trained(const proto::Decided& x) {
  return x.applied() + x.quarantined();
}

decisions decisions_about(const worker_account& worker, const std::vector<proto::Report>& reports) {
  decisions result;
  for (auto& report : reports)
    result.most = std::max(result.most, trained(decided_by(report, worker)));
  const auto first = decided_by(reports.front(), worker);
  for (auto& report : reports) {
    const auto x = decided_by(report, worker);
    result.applied += x.applied();
    result.lost += x.lost();
    result.quarantined += x.quarantined();
    result.rejected += x.rejected_stale();
    result.seen = std::max(result.seen, trained(x) + x.lost());
    result.missing += result.most - std::min(result.most, trained(x) + x.lost());
    result.same = result.same && x.fingerprint() == first.fingerprint()
      && x.quarantined() == first.quarantined();
  }
  return result;
}

/// Adds one worker's gradients to the ledger.
void add_worker(ledger& result, const worker_account& worker,
                const std::vector<proto::Report>& reports) {
  const auto parts = reports.size();
  auto x = decisions_about(worker, reports);
  auto produced = worker.produced;
  auto requeued = worker.requeued * parts;
  if (worker.vanished) {
    // A worker may be lost after some shards have applied their part of its gradient. The other
    // parts, which were in transit, then count as lost. If a gradient reached no shard, its samples
    // were given back with the lease.
    x.lost += x.missing;
    produced = std::max(produced, x.seen + x.rejected + worker.requeued);
    const auto decided = x.all(parts);
    requeued = produced * parts - std::min(decided, produced * parts);
  } else if (!x.same) {
    result.split += std::max<std::uint64_t>(x.missing, 1);
  }
  const auto decided = x.all(parts);
  result.produced += produced * parts;
  result.applied += x.applied;
  result.rejected_stale += x.rejected * parts;
  result.requeued += requeued;
  result.lost += x.lost;
  result.quarantined += x.quarantined;
  if (produced * parts != decided + requeued)
    result.problems.push_back("worker/" + std::to_string(worker.worker) + " produced "
                              + std::to_string(produced * parts) + " parts, but "
                              + std::to_string(decided) + " were decided and "
                              + std::to_string(requeued) + " requeued");
}

void expect_samples(ledger& result, const std::string& what, std::uint64_t found,
                    std::uint64_t expected) {
  if (found != expected)
    result.problems.push_back(what + ' ' + std::to_string(found) + " samples, but the job has "
                              + std::to_string(expected));
}

} // namespace

ledger balance(const std::vector<worker_account>& workers,
               const std::vector<proto::Report>& reports, const lease_account& leases) {
  ledger result;
  if (reports.empty()) {
    result.problems.emplace_back("no shard or rank reported");
    return result;
  }
  for (auto& worker : workers)
    add_worker(result, worker, reports);
  std::uint64_t staleness_sum = 0;
  for (auto& report : reports) {
    result.duplicates += report.duplicates();
    staleness_sum += report.staleness_sum();
    for (auto& x : report.decided())
      if (std::ranges::none_of(workers, [&](auto& w) {
            return w.worker == x.worker() && w.incarnation == x.incarnation();
          }))
        result.problems.push_back("gradients of an unknown worker/" + std::to_string(x.worker())
                                  + " were decided");
  }
  if (result.applied > 0)
    result.staleness_mean =
      static_cast<double>(staleness_sum) / static_cast<double>(result.applied);
  if (result.split > 0)
    result.problems.push_back(std::to_string(result.split)
                              + " gradients were applied by some shards and not by others");
  expect_samples(result, "workers committed", leases.committed + leases.dropped, leases.expected);
  expect_samples(result, "apart from samples that were given back, workers leased",
                 leases.leased - leases.released, leases.expected);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const auto lost = i < leases.lost.size() ? leases.lost[i] : 0;
    expect_samples(result, "shard or rank " + std::to_string(i) + " decided on",
                   reports[i].samples() + reports[i].quarantined_samples() + lost + leases.dropped,
                   leases.expected);
  }
  return result;
}

} // namespace troupe
