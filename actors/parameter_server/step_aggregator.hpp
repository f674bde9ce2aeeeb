#pragma once

#include "messages/buffer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Collects one synchronous step's gradients for a shard, one per rank, and adds them in order of
/// rank. So the sum does not depend on the order of arrival.
class step_aggregator {
public:
  step_aggregator(std::size_t ranks, std::size_t elements);

  /// Takes a rank's gradient (empty for zero samples). False if it is already here.
  bool add(std::size_t rank, std::uint64_t samples, payload gradient);

  /// Takes a rank's gradient out again.
  void remove(std::size_t rank);

  bool complete() const noexcept { return arrived_ == parts_.size(); }

  /// Samples of the parts that have arrived.
  std::uint64_t samples() const noexcept { return samples_; }

  /// The sum, once complete; valid until the next `clear()`. Zeros if no rank has samples.
  std::span<const float> sum();

  /// Forgets the parts before the next step.
  void clear();

private:
  struct part {
    bool present = false;
    std::uint64_t samples = 0;
    payload gradient;
  };

  std::vector<part> parts_;
  std::size_t elements_;
  std::size_t arrived_ = 0;
  std::uint64_t samples_ = 0;
  std::vector<float> sum_;
  bool added_up_ = false;
};

} // namespace troupe
