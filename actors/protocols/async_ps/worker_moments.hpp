#pragma once

#include "messages/buffer.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// The optimizer's first moment of a range, one for each worker: what DANA's workers keep (Hakimi
/// et al. 2019, arXiv 1907.11612), kept where the weights are. The numbers are the same, and so is
/// the memory of all tasks together; but gradients travel as they are computed, bucket by bucket,
/// and a moment moves only with a gradient that is applied.
class worker_moments {
public:
  explicit worker_moments(std::size_t elements) : elements_(elements) {}

  struct moment {
    std::span<float> values;
    /// Updates made of it, the one that follows included.
    std::uint64_t step = 0;
  };

  /// For an update by this worker. Its first one begins with zeros, or with what was restored.
  moment next(std::uint32_t worker, std::uint64_t incarnation);

  /// That worker is gone.
  void drop(std::uint32_t worker, std::uint64_t incarnation);

  /// The mean of all moments: each has the length of a single worker's. What was restored, before
  /// the first update.
  payload mean() const;

  /// All workers go on from this moment, after so many updates of all.
  void restore(std::span<const float> values, std::uint64_t updates);

private:
  struct entry {
    std::vector<float> values;
    std::uint64_t updates = 0;
  };

  std::size_t elements_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, entry> entries_;
  std::vector<float> restored_;
  std::uint64_t restored_updates_ = 0;
};

} // namespace troupe
