#pragma once

#include "actors/model/protocol_traits.hpp"

#include <functional>
#include <span>
#include <vector>

namespace troupe {

struct worker_site;
struct shard_site;
struct job_context;

/// A protocol: its traits, and the functions that start its actors on a node.
///
/// An embedding program adds its own protocol with id CUSTOM in training_options::protocols or
/// node_options::protocols. A job selects it by custom_protocol.name. All nodes of a cluster must
/// add it.
struct protocol {
  protocol_traits traits;

  /// Starts a worker's synchronizer and the actors that it needs, and passes the synchronizer to
  /// the worker.
  std::function<void(const worker_site&)> start_worker;

  /// Starts a parameter shard. May throw device_error, as start_shard() does. Null if workers hold
  /// the weights: the protocol then has no shards.
  std::function<void(const shard_site&)> start_shard = {};
};

/// The protocols that are part of troupe, in the order of builtin_traits().
const std::vector<protocol>& builtin_protocols();

/// The protocol of a job. `own`: the program's own protocols, which must be those that the context
/// was made with.
const protocol& protocol_of(const job_context& context, std::span<const protocol> own);

/// The traits of a program's own protocols.
std::vector<protocol_traits> traits_of(std::span<const protocol> own);

} // namespace troupe
