#pragma once

#include "actors/ring/ring_node.hpp"

#include <cstddef>
#include <functional>
#include <vector>

namespace troupe {

struct worker_site;

/// Starts a worker of RING. Each worker holds a replica of the model, and a ring adds up the
/// gradients of each step.
void start_ring_worker(const worker_site& site);

/// Starts this worker's rank of a ring. The ring adds up float32 vectors of these sizes (in
/// elements), and float64 vectors of the sizes `sums`. The caller makes the rank reachable as
/// service RING_NODE.
/// @param adds_later see ring_place
ring_node_actor spawn_ring_node(const worker_site& site, std::vector<std::size_t> sizes,
                                const std::vector<std::size_t>& sums = {}, bool adds_later = false);

/// The sizes of the sums over the batches of all workers that layers need in a step
/// (batch_norm.sync). Empty if no layer needs such sums, or if there is only one worker.
std::vector<std::size_t> sums_of_step(const worker_site& site);

/// Introduces a rank to its two neighbours in the ring, each of them once it can be reached. Calls
/// `then` when the right neighbour is introduced: from then on, collectives may begin.
void join_ring(const worker_site& site, const ring_node_actor& rank, std::function<void()> then);

} // namespace troupe
