#pragma once

#include "actors/ring/ring_node.hpp"

#include <cstddef>
#include <functional>
#include <vector>

namespace troupe {

struct worker_site;

/// RING: each worker holds a replica, and a ring adds up the gradients of each step.
void start_ring_worker(const worker_site& site);

/// Starts this worker's rank of a ring that adds up vectors of these sizes (in elements), and
/// float64 vectors of the sizes `sums`. The caller makes it reachable as service RING_NODE.
/// @param adds_later see ring_place
ring_node_actor spawn_ring_node(const worker_site& site, std::vector<std::size_t> sizes,
                                const std::vector<std::size_t>& sums = {}, bool adds_later = false);

/// In a step, some layers need sums over the batches of all workers (batch_norm.sync). Returns the
/// sizes of these sums; empty if there are none, or no other workers.
std::vector<std::size_t> sums_of_step(const worker_site& site);

/// Introduces the right neighbour to a rank. Then it calls `then`, because collectives may begin
/// from now on.
void join_ring(const worker_site& site, const ring_node_actor& rank, std::function<void()> then);

} // namespace troupe
