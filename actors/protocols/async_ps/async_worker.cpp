#include "actors/protocols/async_ps/async_worker.hpp"

#include "actors/protocols/async_ps/pacing.hpp"

namespace troupe {

void async_worker::complete(proto::Commit& header, std::span<const float> gradient,
                            const proto::Pacing& known) {
  header.set_scale(limit_factor(header.gradient_norm(), known));
  if (header.samples() == 0)
    return;
  if (const auto slopes = probes_[chain_].see(gradient, header.samples()))
    *header.mutable_slopes() = *slopes;
}

} // namespace troupe
