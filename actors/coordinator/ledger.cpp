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

/// Adds one worker's gradients to the ledger.
void add_worker(ledger& result, const worker_account& worker,
                const std::vector<proto::Report>& reports) {
  const auto parts = reports.size();
  std::uint64_t applied = 0;
  std::uint64_t lost = 0;
  std::uint64_t rejected = 0;
  std::uint64_t seen = 0;
  std::uint64_t most = 0;
  std::uint64_t least = ~std::uint64_t{0};
  bool same = true;
  const auto first = decided_by(reports.front(), worker);
  for (auto& report : reports) {
    const auto x = decided_by(report, worker);
    applied += x.applied();
    lost += x.lost();
    // Rejection is decided once, at the first shard, for all parts.
    rejected += x.rejected_stale();
    seen = std::max(seen, x.applied() + x.lost());
    most = std::max(most, x.applied());
    least = std::min(least, x.applied());
    same = same && x.fingerprint() == first.fingerprint();
  }
  auto produced = worker.produced;
  auto requeued = worker.requeued * parts;
  const auto decided = applied + lost + rejected * parts;
  if (worker.vanished) {
    // Its samples went back with its leases, and so did every part that no shard decided.
    produced = std::max(produced, seen + rejected + worker.requeued);
    requeued = produced * parts - std::min(decided, produced * parts);
  }
  result.produced += produced * parts;
  result.applied += applied;
  result.rejected_stale += rejected * parts;
  result.requeued += requeued;
  result.lost += lost;
  if (!same)
    result.split += std::max<std::uint64_t>(most - least, 1);
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
  expect_samples(result, "workers committed", leases.committed, leases.expected);
  expect_samples(result, "after what was given back, workers leased",
                 leases.leased - leases.released, leases.expected);
  for (std::size_t i = 0; i < reports.size(); ++i)
    expect_samples(result, "shard or rank " + std::to_string(i) + " applied", reports[i].samples(),
                   leases.expected);
  return result;
}

} // namespace troupe
