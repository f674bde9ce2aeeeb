#pragma once

#include "messages/buffer.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace troupe {

/// The first moments that a shard's optimizer keeps: one moment per worker and chain (chains_of).
/// In DANA (Hakimi et al. 2019, arXiv 1907.11612), each worker keeps its moment. Here the shard
/// keeps the moments of all workers. The results and the total memory are the same as in DANA.
/// Moments at the shard have two advantages: workers send gradients bucket by bucket while they
/// compute them, and a gradient changes a moment only if it is applied.
class worker_moments {
public:
  explicit worker_moments(std::size_t elements) : elements_(elements) {}

  struct moment {
    std::span<float> values;
    /// Number of updates of this moment, including the next one.
    std::uint64_t step = 0;
  };

  /// The moment for an update with a gradient of this worker and chain. It starts from the restored
  /// moment or, if there is none, from zeros.
  moment next(std::uint32_t worker, std::uint64_t incarnation, std::uint64_t chain = 0);

  /// Drops the moments of a worker that left or was lost.
  void drop(std::uint32_t worker, std::uint64_t incarnation);

  /// The mean of the moments of all workers and chains. Before the first update: the restored
  /// moment.
  /// @param weight the factor for a moment after this number of updates
  payload mean(const std::function<double(std::uint64_t updates)>& weight) const;

  /// Lets every worker continue with this moment. `updates`: the number of updates, by all workers,
  /// that have contributed to the moment.
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
