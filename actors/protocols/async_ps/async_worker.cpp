#include "actors/protocols/async_ps/async_worker.hpp"

#include "actors/protocols/async_ps/pacing.hpp"

namespace troupe {

async_worker::async_worker(std::uint64_t parameters, std::size_t workers)
  : probe_(parameters), first_damping_(async_pacing::first_damping(workers)) {}

void async_worker::complete(proto::Commit& header, std::span<const float> gradient,
                            const proto::Pacing& known) {
  header.set_scale(limit_factor(header.gradient_norm(), known));
  header.set_damping(known.damping() > 0 ? known.damping() : first_damping_);
  if (header.samples() == 0)
    return;
  if (const auto slopes = probe_.see(gradient, header.samples()))
    *header.mutable_slopes() = *slopes;
}

} // namespace troupe
