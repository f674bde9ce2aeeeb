#pragma once

#include "actors/model/data_shape.hpp"
#include "actors/model/model_builder.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/plan.hpp"
#include "kernels/range.hpp"
#include "kernels/schedule.hpp"
#include "messages/proto/job.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// A job, understood: what all actors of a node share, read-only, from any thread.
struct job_context {
  proto::Job job;
  std::string hash;
  data_shape data;
  built_model model;
  /// Loss and gradients for a worker's batch.
  std::shared_ptr<const plan> training;
  optimizer rule;
  learning_rate rate;

  const layout& parameters() const noexcept { return training->parameters(); }

  /// The parameters' initial values within `part`.
  void initialize(range part, std::span<float> out) const;

  /// The slice of parameter shard `index` of `count`.
  range shard(std::size_t index, std::size_t count) const;

  /// Buckets of the flat gradient, as they become ready in backward.
  std::vector<range> buckets() const;
};

/// Builds the model and its plan. Throws input_error, like the builders it calls.
std::shared_ptr<const job_context> make_job_context(const proto::Job& job, const data_shape& data);

/// Applies gradients to a range of parameters: an optimizer with its state and its place in the
/// learning-rate schedule. The rate follows the samples trained, those of the step itself included.
class range_updater {
public:
  range_updater(const job_context& context, std::size_t elements);

  /// Bytes of optimizer state for so many parameters.
  static std::size_t memory_bytes(const job_context& context, std::size_t elements) noexcept {
    return context.rule.slots() * elements * sizeof(float);
  }

  /// One update from `gradient`, summed over `samples` > 0 samples. `updated` may be `weights`.
  void apply(std::span<const float> weights, std::span<const float> gradient, std::uint64_t samples,
             std::span<float> updated);

  /// Samples trained so far, in earlier runs, too.
  std::uint64_t samples() const noexcept { return samples_; }

  /// The optimizer's state in one of its slots, of all elements.
  std::span<const float> state(std::size_t slot) const;

  /// Goes on where another run was: after so many samples and updates; with its state in one slot,
  /// of all elements.
  void restore(std::uint64_t samples, std::uint64_t updates) noexcept {
    samples_ = samples;
    updates_ = updates;
  }
  void restore(std::size_t slot, std::span<const float> values);

private:
  optimizer rule_;
  learning_rate rate_;
  std::uint64_t train_records_;
  std::uint64_t samples_ = 0;
  std::uint64_t updates_ = 0;
  std::size_t elements_;
  std::vector<float> state_;
};

} // namespace troupe
