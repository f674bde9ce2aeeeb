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

/// Counts the decisions about gradients. For protocols in which each worker applies its gradients
/// to its own replica. All replicas make the same number of steps. From time to time, the workers
/// exchange how many samples they trained and which gradients they left out.
///
/// All counts are whole numbers below 2^24, so that float32 sums over ranks are exact.
class replica_account {
public:
  /// `workers`: all workers, in order of rank.
  replica_account(std::vector<counted_worker> workers, std::size_t rank);

  /// Records that this worker applied a gradient, or left it out because it is not finite.
  void applied(std::uint64_t samples);
  void quarantined(std::uint64_t samples);

  /// Samples of this worker since the last exchange.
  std::uint64_t own_samples() const noexcept { return own_samples_; }

  /// This worker's part of the sum over all ranks: `elements()` numbers. For each rank, they are
  /// the gradients and the samples left out since the last exchange. Only this worker's own numbers
  /// can differ from 0.
  std::vector<float> own_counts() const;
  static std::size_t elements(std::size_t workers) noexcept { return 2 * workers; }
  std::size_t elements() const noexcept { return elements(workers_.size()); }

  /// Checks that the sums over all ranks are whole numbers that include this rank's part.
  bool fits(std::span<const float> counts, std::uint64_t samples) const noexcept;

  /// Takes the sums of own_counts() and own_samples() over all ranks. They must fit. This rank's
  /// counts then restart from 0.
  void exchanged(std::span<const float> counts, std::uint64_t samples);

  /// `steps`: the number of steps that each worker made in this run. All counts must have been
  /// exchanged.
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
