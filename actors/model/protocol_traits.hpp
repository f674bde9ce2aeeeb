#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

// The part of a protocol that needs no actor system. actors/protocols adds how its actors start.

namespace troupe {

class problem_list;

/// Who holds the weights and the optimizer's state, and so decides on gradients.
enum class weights_at {
  shards,  ///< each a range of the parameters
  workers, ///< each a replica of all parameters
};

/// Vectors as long as the parameters of a task, which this protocol needs beside the versions of
/// the weights, the optimizer's state and the gradient that is computed.
struct protocol_memory {
  /// On a worker that has peers.
  std::size_t worker = 0;
  std::size_t shard = 0;
};

/// A row of the table of protocols: everything that the rest of the program needs to know about
/// one. Plain data; the functions may be called from any thread.
struct protocol_traits {
  proto::Protocol id = proto::PROTOCOL_UNSET;
  /// As in reports and on the command line: "async_ps".
  std::string name;
  weights_at weights = weights_at::shards;
  /// Every step needs all workers: each makes the same number of steps.
  bool in_step = false;
  /// The run ends if a worker is lost. Always so where workers go in step.
  bool needs_all = false;
  /// Workers can normalize over the samples of all of them (batch_norm.sync): they go in step, and
  /// get a ring_node for sums (actors/protocols/ring/ring.hpp).
  bool sums_over_workers = false;
  /// Shard 0 wants to know which workers hold no lease (proto::IdleWorkers).
  bool tells_idle = false;
  /// Shards hold gradients of which no update is made yet. At the end of an epoch all shards hear
  /// that all workers are idle, and make an update with these.
  bool holds_back = false;
  /// A worker computes its next gradient while its last one is decided.
  bool overlaps = false;
  /// Who decides on a gradient, as text: "parameter server".
  std::string decided_by;
  /// How the weights of all workers are combined, as text for `troupe check`.
  std::function<std::string(const proto::Job&)> exchange;
  /// The job field that only this protocol reads; empty if there is none.
  std::string settings = {};
  /// Checks that field. Called if the job has this protocol. Null: nothing to check.
  std::function<void(const proto::Job&, problem_list&)> validate = {};
  /// Checks that field for this number of workers, once it is known. Null: nothing to check.
  std::function<void(const proto::Job&, std::size_t workers, problem_list&)> validate_workers = {};
  /// What the job's field changes in this row. Null: nothing.
  std::function<void(const proto::Job&, protocol_traits&)> adapt = {};
  /// How many gradients make an update, with this many workers. Null: see gradients_of_step().
  std::function<std::size_t(const proto::Job&, std::size_t workers)> step_gradients = {};
  /// Null: a worker waits in every step. See waits_after().
  std::function<std::uint64_t(const proto::Job&)> steps_between_waits = {};
  protocol_memory memory = {};
  /// Additional vectors of optimizer state on a shard, for this many workers. Null: none.
  std::function<std::size_t(const proto::Job&, std::size_t workers)> shard_state = {};

  /// Steps that a worker makes before it waits for others again.
  std::uint64_t waits_after(const proto::Job& job) const {
    return steps_between_waits ? steps_between_waits(job) : 1;
  }

  /// Number of gradients that make an update, with this many workers.
  std::size_t gradients_of_step(const proto::Job& job, std::size_t workers) const {
    return step_gradients ? step_gradients(job, workers) : in_step ? workers : 1;
  }

  bool uses_shards() const noexcept { return weights == weights_at::shards; }

  /// Number of parameter shards if the user does not set it.
  std::uint32_t default_shards() const noexcept { return uses_shards() ? 1 : 0; }
};

/// The rows that come with troupe.
std::span<const protocol_traits> builtin_traits();

/// The names of these rows and of a program's own rows.
std::vector<std::string> protocol_names(std::span<const protocol_traits> own = {});

/// The row of the job's protocol; null if there is none.
/// @param own rows that the program adds: a job with protocol CUSTOM names one of them
const protocol_traits* find_traits(const proto::Job& job,
                                   std::span<const protocol_traits> own = {});

/// The same, but throws input_error if there is none; the error lists the known names.
const protocol_traits& traits_of(const proto::Job& job, std::span<const protocol_traits> own = {});

/// The same row as it is for this job: see protocol_traits::adapt.
protocol_traits adapted_traits(const proto::Job& job, std::span<const protocol_traits> own = {});

/// Throws input_error if the job's protocol does not allow this number of workers.
void check_workers(const proto::Job& job, std::size_t workers,
                   std::span<const protocol_traits> own = {});

/// Checks the job's protocol and its field. Refuses the fields of other protocols.
void check_protocol(const proto::Job& job, std::span<const protocol_traits> own,
                    problem_list& problems);

/// The value of a parameter of `custom_protocol`; empty if the job does not give it.
std::string custom_parameter(const proto::Job& job, const std::string& name);

} // namespace troupe
