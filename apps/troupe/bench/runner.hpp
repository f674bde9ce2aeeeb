#pragma once

#include "apps/troupe/bench/stopwatch.hpp"
#include "apps/troupe/bench/works.hpp"
#include "kernels/cpu/executor.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::bench {

/// Number of different batches in the data. Steps use them in turn.
inline constexpr std::size_t batches = 4;

/// The data of `batches` batches, and the initial weights. Troupe and a peer train with the same
/// data and weights.
struct material {
  explicit material(const work& what);

  layout parameters;
  std::vector<float> weights;
  /// The inputs, with shape (batches, batch, inputs). They are in `ids` if the work takes ids,
  /// otherwise in `features`. The other vector is empty.
  std::vector<float> features;
  std::vector<std::int32_t> ids;
  /// (batches, batch, labels)
  std::vector<std::int32_t> labels;
};

/// The result of some training steps.
struct round {
  double seconds = 0;
  /// Mean loss per label, one for each step.
  std::vector<double> losses;
};

/// The plan (the instructions of a training step) that computes the loss and the gradients of a
/// work, for batches of options.max_rows. The caller sets the other options for a device, for
/// example with cpu_plan_options().
std::shared_ptr<const plan> training_plan(const work& what, plan_options options);

/// The inputs and the labels of a batch, for the placeholders of the plan.
std::array<feed<float>, 2> feeds_of(const work& what, const material& data, std::size_t batch);

/// Trains a work with troupe, on the calling thread and on the executor's threads.
class runner {
public:
  runner(const work& what, const material& data, std::size_t threads, passing how,
         dtype precision = dtype::float32);

  round run(std::size_t steps);

  /// Seconds of each instruction of a training step: the median over `steps` steps. The last entry
  /// is for the update. `steps` must be at least 1.
  std::vector<double> profile(std::size_t steps);
  /// The names of the entries of `profile`.
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
