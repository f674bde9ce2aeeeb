#pragma once

#include "messages/buffer.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace troupe {

/// The optimizer's first moment of a range: one moment per worker and chain (chains_of). In DANA
/// (Hakimi et al. 2019, arXiv 1907.11612), workers keep these moments. Here the shard keeps them,
/// next to the weights. The results and the total memory are the same. There are two differences:
/// gradients are sent bucket by bucket while they are computed, and a gradient changes a moment
/// only if it is applied.
class worker_moments {
public:
  explicit worker_moments(std::size_t elements) : elements_(elements) {}

  struct moment {
    std::span<float> values;
    /// Number of updates of this moment, including the coming one.
    std::uint64_t step = 0;
  };

  /// The moment for an update by this worker. The first update of a worker starts from zeros or
  /// from the restored moment.
  moment next(std::uint32_t worker, std::uint64_t incarnation, std::uint64_t chain = 0);

  /// Drops the moments of a worker that left or was lost.
  void drop(std::uint32_t worker, std::uint64_t incarnation);

  /// The mean of all moments. It has the length of a single worker's moment. Before the first
  /// update, this is the restored moment.
  payload mean() const;

  /// Every worker continues with this moment, which is the result of `updates` updates in total.
  void restore(std::span<const float> values, std::uint64_t updates);

private:
  struct entry {
    std::vector<float> values;
    std::uint64_t updates = 0;
  };

  std::size_t elements_;
  /// By worker, incarnation and chain.
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>, entry> entries_;
  std::vector<float> restored_;
  std::uint64_t restored_updates_ = 0;
};

} // namespace troupe
