#pragma once

#include "actors/parameter_server/worker_policy.hpp"
#include "actors/protocols/async_ps/slope_probe.hpp"

#include <cstdint>

namespace troupe {

/// The worker's part of ASYNC_PS with compensation AUTO. It limits its gradients (limit_factor) and
/// reports to shard 0 whether the weights overshoot (slope_probe).
class async_worker : public worker_policy {
public:
  explicit async_worker(std::uint64_t parameters) : probe_(parameters) {}

  void read(std::span<const weight_range> weights) override { probe_.read(weights); }
  void complete(proto::Commit& header, std::span<const float> gradient,
                const proto::Pacing& known) override;

private:
  slope_probe probe_;
};

} // namespace troupe
