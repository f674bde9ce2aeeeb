#pragma once

#include "actors/model/job_context.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <string>

namespace troupe {

/// Sets data.batch, the batch of one worker, to data.global_batch / workers / accumulate. Does
/// nothing to a job without a global batch. Only the coordinator knows the number of workers, so
/// only the coordinator calls this, before it reads the data.
/// @throws input_error if the result is not a whole number, or if data.batch is also given and
/// differs
void divide_batch(proto::Job& job, std::size_t workers);

/// Describes the number of samples in a step: "64 samples per worker, 256 over all 4 workers"; with
/// accumulate: 2, "128 samples per worker (2 batches of 64), 512 over all 4 workers".
std::string batch_text(const job_context& context, std::size_t workers);

/// Like the function above, in a run that has lost workers: only `present` of the `workers` workers
/// are left: "64 samples per worker, 192 over 3 of 4 workers"; with a global batch, "..., of
/// data.global_batch: 256".
std::string batch_text(const job_context& context, std::size_t present, std::size_t workers);

} // namespace troupe
