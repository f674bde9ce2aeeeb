#pragma once

#include "actors/parameter_server/shard_policy.hpp"
#include "actors/parameter_server/step_aggregator.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// SYNC_PS: a step's gradients are added in order of rank, and make one update once each worker has
/// committed its own. One that is quarantined counts as committed, and adds nothing.
class sync_policy : public shard_policy {
public:
  /// `workers`: their indices, in order of rank.
  sync_policy(range where, std::vector<std::uint32_t> workers);

  bool in_step() const noexcept override { return true; }
  std::optional<std::string> refusal(const proto::Commit& x, std::uint64_t version) const override;
  bool take(contribution x) override;
  bool ready() const noexcept override { return !workers_.empty() && sum_.complete(); }
  std::span<const contribution> parts() const noexcept override { return parts_; }
  planned_update plan(std::span<const float> weights, std::uint64_t version) override;
  void made(std::span<const float> before, std::span<const float> after,
            const proto::Pushed& decided) override;

private:
  std::vector<std::uint32_t> workers_;
  step_aggregator sum_;
  std::vector<contribution> parts_;
};

} // namespace troupe
