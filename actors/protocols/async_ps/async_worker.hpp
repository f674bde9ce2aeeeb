#pragma once

#include "actors/parameter_server/worker_policy.hpp"
#include "actors/protocols/async_ps/slope_probe.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// The worker's part of ASYNC_PS with compensation AUTO. It limits the norm of the worker's
/// gradients (limit_factor). It also measures slopes of the loss along the path of the weights
/// (slope_probe) and reports them to shard 0. From the slopes, shard 0 finds out whether the
/// weights overshoot. With `pull_ahead: n`, the worker's gradients take turns in n + 1 chains
/// (chains_of). A slope is measured between two successive gradients of one chain.
class async_worker : public worker_policy {
public:
  explicit async_worker(std::uint64_t parameters, std::size_t chains = 1)
    : probes_(chains, slope_probe{parameters}) {}

  void read(std::span<const weight_range> weights) override {
    chain_ = (chain_ + 1) % probes_.size();
    probes_[chain_].read(weights);
  }
  void complete(proto::Commit& header, std::span<const float> gradient,
                const proto::Pacing& known) override;

private:
  std::vector<slope_probe> probes_;
  std::size_t chain_ = 0;
};

} // namespace troupe
