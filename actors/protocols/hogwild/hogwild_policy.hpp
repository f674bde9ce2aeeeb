#pragma once

#include "actors/parameter_server/live_weights.hpp"
#include "actors/protocols/async_ps/async_policy.hpp"

#include <memory>
#include <utility>

namespace troupe {

/// The policy of HOGWILD. A worker applies its gradient to the live weights before it commits the
/// gradient. So the shard only counts gradients, as in ASYNC_PS.
class hogwild_policy : public async_policy {
public:
  hogwild_policy(std::shared_ptr<const job_context> context, range where, std::size_t shard,
                 std::shared_ptr<live_weights> weights)
    // The number of workers is given as 1, so that gradients are not corrected for staleness.
    : async_policy(std::move(context), where, shard, 1, nullptr), weights_(std::move(weights)) {}

  bool needs_gradients() const noexcept override { return false; }
  std::shared_ptr<live_weights> live() const override { return weights_; }
  void restored(std::span<const float> weights, std::uint64_t samples,
                std::uint64_t updates) override {
    weights_->restore(weights, samples, updates);
  }

private:
  std::shared_ptr<live_weights> weights_;
};

} // namespace troupe
