#pragma once

#include "apps/troupe/bench/statistics.hpp"
#include "kernels/cuda/device.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe::bench {

/// How often something is measured.
struct gpu_rounds {
  std::uint32_t rounds = 15;
  /// Shortest duration of a round.
  double seconds = 0.1;
  /// Most turns of a round.
  std::size_t turns = 100'000;
};

/// Submits one turn of the work to measure to the main stream. Turns have consecutive numbers, by
/// which they choose their memory.
using gpu_work_turn = std::function<void(std::size_t)>;

/// Measures works on the main stream, one after the other in each round. The time of a round is
/// that between two events of the device; before, each work takes `warm_up` turns. Returns the
/// seconds of a turn, one statistic for each work.
std::vector<statistics> measure_on(cuda::device& gpu, const gpu_rounds& how, std::size_t warm_up,
                                   std::span<const gpu_work_turn> works);

/// The seconds that the device takes for what `f` submits to the main stream. Returns when it is
/// done.
double seconds_of(cuda::device& gpu, const std::function<void()>& f);

} // namespace troupe::bench
