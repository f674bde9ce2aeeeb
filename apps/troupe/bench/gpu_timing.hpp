#pragma once

#include "apps/troupe/bench/statistics.hpp"
#include "kernels/cuda/device.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe::bench {

/// How often and how long a work is measured.
struct gpu_rounds {
  std::uint32_t rounds = 15;
  /// Shortest duration of a round in seconds.
  double seconds = 0.1;
  /// Largest number of turns (repetitions of the measured work) in a round.
  std::size_t turns = 100'000;
};

/// Submits one turn (one execution) of the measured work to the main stream. The argument is the
/// number of the turn. With this number, the turn chooses the memory that it uses.
using gpu_work_turn = std::function<void(std::size_t)>;

/// Measures works on the main stream. Each round measures all works, one after the other. The time
/// of a round is the time between two events of the device. Before the first round, each work runs
/// for `warm_up` turns. Returns statistics of the seconds per turn, one for each work.
std::vector<statistics> measure_on(cuda::device& gpu, const gpu_rounds& how, std::size_t warm_up,
                                   std::span<const gpu_work_turn> works);

/// The seconds that the device needs for the work that `f` submits to the main stream. Returns when
/// the work is done.
double seconds_of(cuda::device& gpu, const std::function<void()>& f);

} // namespace troupe::bench
