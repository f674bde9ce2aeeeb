#pragma once

#include "actors/model/job_context.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <string>

namespace troupe {

/// Sets data.batch, the samples of a worker's batch, to data.global_batch / workers / accumulate.
/// Does nothing to a job without a global batch. Only the coordinator, which knows the number of
/// workers, can call it, before it reads the data.
/// @throws input_error: not a whole number; or data.batch is given, too, and differs
void divide_batch(proto::Job& job, std::size_t workers);

/// The number of samples of a step, as text: "64 samples per worker, 256 over all 4 workers"; with
/// accumulate: 2, "128 samples per worker (2 batches of 64), 512 over all 4 workers".
std::string batch_text(const job_context& context, std::size_t workers);

} // namespace troupe
