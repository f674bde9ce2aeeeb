#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// The outer optimizer of LOCAL_SGD (DiLoCo; Douillard et al. 2023, arXiv 2311.08105). With w the
/// outer weights after the last average, and m the mean of all replicas now, the outer gradient is
/// w - m, and the next outer weights are those of a step from w by optimizer.hpp's rule.
///
/// Statistics of layers become their mean, without a step. All replicas hold the same state, since
/// they see the same means. Plain state, used by one actor.
class outer_optimizer {
public:
  /// The job has local_sgd.outer. Begins at the initial weights, with a momentum of 0.
  explicit outer_optimizer(std::shared_ptr<const job_context> context);

  /// One step of a range of the parameters.
  /// @param values where.size() elements: the mean of all replicas; then the next outer weights
  void step(range where, std::span<float> values);

  /// The outer weights, as long as the parameters.
  std::span<const float> weights() const noexcept { return weights_; }

  /// The whole momentum, as long as the parameters, for a checkpoint. None if the rule has none.
  std::span<const float> momentum() const noexcept { return momentum_; }

  /// Before training: goes on from these outer weights, or from this momentum, of all parameters.
  void restore_weights(std::span<const float> values);
  void restore_momentum(std::span<const float> values);

private:
  std::shared_ptr<const job_context> context_;
  optimizer rule_;
  double rate_;
  std::vector<float> weights_;
  std::vector<float> momentum_;
};

} // namespace troupe
