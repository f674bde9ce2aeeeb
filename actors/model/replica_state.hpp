#pragma once

#include "actors/model/job_context.hpp"

#include <cstddef>
#include <string>
#include <vector>

// What state the workers of a job hold, and how a checkpoint names it.

namespace troupe {

/// Whether the workers divide the optimizer's state (ring.shard_optimizer): each holds only the
/// state of its part of each bucket.
bool divides_state(const job_context& context, std::size_t workers);

/// For protocols whose workers hold the weights: the parts of the parameters, in ascending order,
/// that the workers send for a checkpoint or an evaluation. There is an even part for each worker.
/// If the state is divided, each worker has such a part of every bucket.
std::vector<range> replica_parts(const job_context& context, std::size_t workers);

/// Vectors as long as the parameters that a worker holds for an outer optimizer: the last outer
/// weights, and a momentum.
std::size_t outer_vectors(const proto::Job& job);

/// Names of the vectors in a checkpoint behind the weights: the optimizer's state, the outer
/// momentum, and own_state() of each worker, where optimizers are their own.
std::vector<std::string> state_names(const job_context& context, std::size_t workers);

/// How many of these names, at their end, are those of one worker each. 0 for a single worker: the
/// optimizer's state is its own.
std::size_t own_states(const job_context& context, std::size_t workers);

/// The name of a slot of the optimizer that is a worker's own: "worker_1/exp_avg".
std::string own_state(const job_context& context, std::size_t rank, std::size_t slot);

} // namespace troupe
