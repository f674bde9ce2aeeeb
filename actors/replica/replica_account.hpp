#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// A worker of the view, as reports name it.
struct counted_worker {
  std::uint32_t index = 0;
  std::uint64_t incarnation = 0;
};

/// What a worker's replica has decided on gradients, for protocols in which each worker applies its
/// own gradients to a replica of its own. All replicas make the same number of steps; who left out
/// what, and how many samples all have trained, is exchanged between them from time to time.
///
/// Counts are whole numbers below 2^24, so that a sum of float32 over ranks is exact.
class replica_account {
public:
  /// `workers`: in order of rank.
  replica_account(std::vector<counted_worker> workers, std::size_t rank);

  /// This worker applied a gradient, or left it out because it was not finite.
  void applied(std::uint64_t samples);
  void quarantined(std::uint64_t samples);

  /// Samples of this worker since the last exchange.
  std::uint64_t own_samples() const noexcept { return own_samples_; }

  /// What this worker adds to the sum over all ranks: for each rank, gradients and samples that
  /// were left out since the last exchange; zeros except for its own. `elements()` numbers.
  std::vector<float> own_counts() const;
  static std::size_t elements(std::size_t workers) noexcept { return 2 * workers; }
  std::size_t elements() const noexcept { return elements(workers_.size()); }

  /// Whether the sums over all ranks can be: whole numbers, each rank's own part among them.
  bool fits(std::span<const float> counts, std::uint64_t samples) const noexcept;

  /// The sums over all ranks of own_counts() and own_samples(), which fit. Nothing is new
  /// afterwards.
  void exchanged(std::span<const float> counts, std::uint64_t samples);

  /// `steps`: of each worker in this run, all exchanged.
  proto::Report report(std::uint64_t steps) const;

private:
  std::vector<counted_worker> workers_;
  std::size_t rank_;
  std::uint64_t own_samples_ = 0;
  std::uint64_t own_quarantined_ = 0;
  std::uint64_t own_quarantined_samples_ = 0;
  std::vector<std::uint64_t> quarantined_;
  std::uint64_t quarantined_samples_ = 0;
  std::uint64_t samples_ = 0;
};

} // namespace troupe
