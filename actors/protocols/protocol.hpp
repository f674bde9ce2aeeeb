#pragma once

#include "actors/model/protocol_traits.hpp"

#include <functional>
#include <span>
#include <vector>

namespace troupe {

struct worker_site;
struct shard_site;
struct job_context;

/// A protocol: a row of traits, and how its actors start on a node.
///
/// A program adds a protocol of its own by a row with id CUSTOM, in training_options::protocols or
/// node_options::protocols; a job names it in custom_protocol.name. All nodes of a cluster need the
/// row.
struct protocol {
  protocol_traits traits;

  /// Starts the synchronizer of a worker, and what it needs, and gives it to the worker.
  std::function<void(const worker_site&)> start_worker;

  /// Starts a parameter shard. Null where workers hold the weights: shards are idle then.
  std::function<void(const shard_site&)> start_shard = {};
};

/// The protocols that come with troupe, in the order of builtin_traits().
const std::vector<protocol>& builtin_protocols();

/// How the actors of a job's protocol start. `own`: those of the program, from which the context
/// was made.
const protocol& protocol_of(const job_context& context, std::span<const protocol> own);

/// The traits of a program's own protocols.
std::vector<protocol_traits> traits_of(std::span<const protocol> own);

} // namespace troupe
