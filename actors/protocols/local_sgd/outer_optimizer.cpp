#include "actors/protocols/local_sgd/outer_optimizer.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace troupe {

namespace {

optimizer rule_of(const proto::OuterOptimizer& x) {
  optimizer result;
  result.kind = x.kind() == proto::OuterOptimizer::SGD ? optimizer_kind::sgd
    : x.kind() == proto::OuterOptimizer::MOMENTUM      ? optimizer_kind::momentum
                                                       : optimizer_kind::nesterov;
  result.momentum = static_cast<float>(x.momentum());
  return result;
}

} // namespace

outer_optimizer::outer_optimizer(std::shared_ptr<const job_context> context)
  : context_(std::move(context)), rule_(rule_of(context_->job.local_sgd().outer())),
    rate_(context_->job.local_sgd().outer().rate()), weights_(context_->parameters().size()),
    momentum_(rule_.slots() * weights_.size()) {
  context_->initialize({0, weights_.size()}, weights_);
}

void outer_optimizer::step(range where, std::span<float> values) {
  for (const auto& tensor : context_->parameters().entries()) {
    const auto common = intersect(tensor.elements(), where);
    if (common.empty())
      continue;
    const auto outer = std::span{weights_}.subspan(common.begin, common.size());
    const auto mine = values.subspan(common.begin - where.begin, common.size());
    if (tensor.kind != parameter_kind::trainable) {
      std::ranges::copy(mine, outer.begin());
      continue;
    }
    std::ranges::transform(outer, mine, mine.begin(), std::minus{});
    update_arguments<float> how;
    how.weights = how.updated = outer;
    how.gradient = mine;
    if (!momentum_.empty())
      how.state = std::span{momentum_}.subspan(common.begin, common.size());
    how.rate = rate_;
    update(rule_, how);
    std::ranges::copy(outer, mine.begin());
  }
}

void outer_optimizer::restore_weights(std::span<const float> values) {
  std::ranges::copy(values, weights_.begin());
}

void outer_optimizer::restore_momentum(std::span<const float> values) {
  std::ranges::copy(values, momentum_.begin());
}

} // namespace troupe
