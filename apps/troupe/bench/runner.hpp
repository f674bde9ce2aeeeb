#pragma once

#include "apps/troupe/bench/stopwatch.hpp"
#include "apps/troupe/bench/works.hpp"
#include "kernels/cpu/executor.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::bench {

/// Batches that are trained on in turn.
inline constexpr std::size_t batches = 4;

/// Data in memory, for `batches` batches, and the weights to begin with: the same for troupe and a
/// peer.
struct material {
  explicit material(const work& what);

  layout parameters;
  std::vector<float> weights;
  /// One of the two, (batches, batch, inputs).
  std::vector<float> features;
  std::vector<std::int32_t> ids;
  /// (batches, batch, labels)
  std::vector<std::int32_t> labels;
};

/// Some steps of training.
struct round {
  double seconds = 0;
  /// Mean per label, one per step.
  std::vector<double> losses;
};

/// Trains a work with troupe, on the calling thread and threads of the executor.
class runner {
public:
  runner(const work& what, const material& data, std::size_t threads, passing how);

  round run(std::size_t steps);

  /// Seconds per instruction of the plan, the median of `steps` steps; the last one is the update.
  /// Requires steps >= 1.
  std::vector<double> profile(std::size_t steps);
  /// What `profile` measures, in words.
  std::vector<std::string> names() const;

private:
  double step(function_ref<void(std::size_t)> on_instruction);

  const work& what_;
  const material& data_;
  passing how_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
  std::vector<float> state_;
  std::vector<const float*> pointers_;
  executor<float> executor_;
  std::uint64_t steps_ = 0;
};

} // namespace troupe::bench
