#pragma once

#include "actors/model/job_context.hpp"
#include "messages/residence.hpp"

#include <cstddef>
#include <string>
#include <vector>

// The state that the workers of a job hold, and its names in a checkpoint.

namespace troupe {

/// True if the workers divide the optimizer's state (ring.shard_optimizer). Each worker then holds
/// only the state for its part of each bucket (job_context::buckets).
bool divides_state(const job_context& context, std::size_t workers);

/// What a worker on a GPU keeps in the GPU's memory between steps.
///
/// The weights stay there if two conditions hold. First, the protocol permits it
/// (protocol_traits::replica_on_gpu). Second, each worker updates all weights by itself, and gets
/// the same bits as the CPU. The second condition excludes `ring.shard_optimizer`, LAMB and a
/// moving average.
///
/// The gradients also stay there if two conditions hold. First, no other worker needs them
/// (LOCAL_SGD, or one worker), or the workers add them up on their GPUs. Second, nothing computes
/// with them on the host. The second condition excludes an `exchange_precision` of BFLOAT16.
/// @param in_ring true if all workers are in a device_ring
residence residence_of(const job_context& context, std::size_t workers, bool in_ring = false);

/// True if workers add up their gradients on their GPUs when all of them are in a device_ring.
bool adds_on_gpus(const job_context& context, std::size_t workers);

/// The parts of the parameters that the workers send for a checkpoint or an evaluation, in
/// ascending order. Only for protocols whose workers hold the weights. Each worker sends an equal
/// part of the parameters. If the state is divided, each worker sends an equal part of every
/// bucket.
std::vector<range> replica_parts(const job_context& context, std::size_t workers);

/// Number of vectors, each as long as the parameters, that a worker holds for an outer optimizer:
/// the last outer weights, and a momentum.
std::size_t outer_vectors(const proto::Job& job);

/// Names of the vectors that follow the weights in a checkpoint: the optimizer's state; the moving
/// average of the weights; the outer momentum; and, if each worker has its own optimizer,
/// own_state() of each worker.
std::vector<std::string> state_names(const job_context& context, std::size_t workers);

/// The number of names at the end of state_names() that belong to single workers (own_state). 0 if
/// there is only one worker: the state of its optimizer then comes first in state_names().
std::size_t own_states(const job_context& context, std::size_t workers);

/// The name of a slot of a worker's own optimizer: "worker_1/exp_avg".
std::string own_state(const job_context& context, std::size_t rank, std::size_t slot);

} // namespace troupe
