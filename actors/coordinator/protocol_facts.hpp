#pragma once

#include "actors/model/job_context.hpp"

#include <cstdint>

// What the coordinator needs to know of a job's protocol.

namespace troupe {

/// Parameter servers decide on gradients; otherwise the workers' ranks do.
inline bool uses_shards(const job_context& x) {
  return x.job.protocol() != proto::RING;
}

/// Every step needs all workers.
inline bool in_step(const job_context& x) {
  return x.job.protocol() != proto::ASYNC_PS;
}

/// Steps that a worker makes by itself before it waits for others again.
inline std::uint64_t steps_between_waits(const job_context&) {
  return 1;
}

} // namespace troupe
