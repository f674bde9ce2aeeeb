#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Identifies a worker of the view in reports.
struct counted_worker {
  std::uint32_t index = 0;
  std::uint64_t incarnation = 0;
};

/// Counts the gradients that all workers applied or left out, for protocols in which each worker
/// applies its gradients to its own replica. From time to time, the workers exchange their numbers
/// of steps, of samples, and of gradients that they left out. A worker may make further steps
/// during an exchange.
///
/// The counts of an exchange (own_counts()) are whole numbers up to 2^24, so that float32 sums over
/// ranks are exact. Samples are added up separately.
class replica_account {
public:
  /// `workers`: all workers, in order of rank.
  replica_account(std::vector<counted_worker> workers, std::size_t rank);

  /// Number of gradients of this worker so far.
  std::uint64_t steps() const noexcept { return all_[rank_].steps + own_.steps; }

  /// Records that this worker applied a gradient, or left it out because it is not finite.
  void applied(std::uint64_t samples);
  void quarantined(std::uint64_t samples);

  /// Samples that this worker has trained since it contributed to the last exchange.
  std::uint64_t own_samples() const noexcept { return own_samples_; }

  /// The vector that this worker contributes to an exchange, which adds up the vectors of all
  /// ranks. It has elements() numbers: three counts for each rank. The counts are steps, gradients
  /// left out, and samples left out, since this worker contributed to the last exchange. The counts
  /// of all other ranks are 0.
  std::vector<float> own_counts() const;
  static std::size_t elements(std::size_t workers) noexcept { return fields * workers; }
  std::size_t elements() const noexcept { return elements(workers_.size()); }

  /// Checks the sums of an exchange: they must be whole numbers, and the numbers for this rank must
  /// not be larger than what this rank itself has counted.
  /// @param samples the sum of own_samples() over all ranks
  /// @param own this rank's part of `samples`
  bool fits(std::span<const float> counts, std::uint64_t samples, std::uint64_t own) const noexcept;

  /// The largest number of steps of any rank, and this rank's number of steps.
  /// @param counts the sums of own_counts() over all ranks
  std::uint64_t most_steps(std::span<const float> counts) const;
  std::uint64_t own_steps(std::span<const float> counts) const {
    return tally_of(counts, rank_).steps;
  }

  /// Takes the result of an exchange, for which fits() must be true. Steps and samples that this
  /// rank has counted since it contributed are kept for the next exchange.
  void exchanged(std::span<const float> counts, std::uint64_t samples, std::uint64_t own);

  /// The final counts of all workers. All counts must have been exchanged.
  proto::Report report() const;

private:
  struct tally {
    std::uint64_t steps = 0;
    std::uint64_t quarantined = 0;
    std::uint64_t quarantined_samples = 0;
  };
  static constexpr std::size_t fields = 3;

  static tally tally_of(std::span<const float> counts, std::size_t rank);

  std::vector<counted_worker> workers_;
  std::size_t rank_;
  tally own_;
  std::uint64_t own_samples_ = 0;
  /// By rank: the total of all exchanges.
  std::vector<tally> all_;
  std::uint64_t samples_ = 0;
};

} // namespace troupe
