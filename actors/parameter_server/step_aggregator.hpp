#pragma once

#include "actors/parameter_server/staged_gradients.hpp"
#include "kernels/range.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// Collects the gradients of one synchronous step for a shard, one per rank, and adds them in order
/// of rank. The sum therefore does not depend on the order of arrival.
class step_aggregator {
public:
  step_aggregator(std::size_t ranks, std::size_t elements);

  /// Takes a rank's gradient (empty if it has no samples). Returns false if this rank's gradient
  /// has already arrived.
  bool add(std::size_t rank, std::uint64_t samples, shard_gradient gradient);

  /// Removes a rank's gradient.
  void remove(std::size_t rank);

  bool complete() const noexcept { return arrived_ == parts_.size(); }

  /// Number of samples of the gradients that have arrived.
  std::uint64_t samples() const noexcept { return samples_; }

  /// The elements of the sum that may differ from 0. Null if this is not known for one of the
  /// gradients.
  std::shared_ptr<const range_list> touched() const;

  /// The sum, once complete. Valid until the next `clear()`. Zeros if no rank has samples.
  std::span<const float> sum();

  /// Two vectors; the second one may be empty.
  struct two_terms {
    std::span<const float> first;
    std::span<const float> last;
  };

  /// The sum as two terms: first + last gives the same bits as sum(). The caller can add the terms
  /// while it reads them, which saves a pass over the memory. With two ranks, the terms are the two
  /// gradients. Valid until the next `clear()`.
  two_terms terms();

  /// Drops all gradients, for the next step.
  void clear();

private:
  struct part {
    bool present = false;
    std::uint64_t samples = 0;
    shard_gradient gradient;
  };

  /// The gradients that are not empty, in order of rank.
  std::vector<std::span<const float>> gradients() const;
  void clear_sum();
  void add_up(std::span<const std::span<const float>> terms);

  std::vector<part> parts_;
  std::size_t elements_;
  std::size_t arrived_ = 0;
  std::uint64_t samples_ = 0;
  std::vector<float> sum_;
  /// `sum_` is 0 in all other elements. Null if this is not known.
  std::shared_ptr<const range_list> written_;
  bool added_up_ = false;
};

} // namespace troupe
