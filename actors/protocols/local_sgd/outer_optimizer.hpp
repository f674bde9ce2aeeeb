#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/range.hpp"
#include "messages/buffer.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// The outer optimizer of LOCAL_SGD (DiLoCo; Douillard et al. 2023, arXiv 2311.08105). It treats
/// the change of the mean of all replicas as a gradient. Let w be the outer weights after the last
/// average, and m the mean of all replicas now. The outer gradient is w - m. One step of the
/// optimizer local_sgd.outer.kind with this gradient gives the next outer weights (formulas:
/// optimizer.hpp).
///
/// Statistics of layers are replaced by their mean, without a step. Each worker has its own outer
/// optimizer. All of them have the same state, because they get the same means. This is a plain
/// object, which only one actor uses.
class outer_optimizer {
public:
  /// The job must have local_sgd.outer. Starts from the initial weights, with a momentum of 0.
  explicit outer_optimizer(std::shared_ptr<const job_context> context);

  /// Makes one outer step for a range of the parameters.
  /// @param values where.size() elements; in: the mean of all replicas, out: the next outer weights
  void step(range where, std::span<float> values);

  /// The outer weights of all parameters.
  std::span<const float> weights() const noexcept { return weights_; }

  /// The momentum of all parameters, for a checkpoint. Empty if the rule has none.
  std::span<const float> momentum() const noexcept { return momentum_; }

  /// Before training: continue from the outer weights, or from the momentum, of a checkpoint.
  /// `values` covers all parameters.
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
