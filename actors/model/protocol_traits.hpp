#pragma once

#include "messages/proto/job.pb.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

// The part of a protocol that needs no actor system. actors/protocols starts the actors of a
// protocol.

namespace troupe {

class problem_list;

/// The tasks that hold the weights and the optimizer's state. They also decide whether a gradient
/// is applied.
enum class weights_at {
  shards,  ///< each shard holds a range of the parameters
  workers, ///< each worker holds a replica of all parameters
};

/// The memory that a protocol needs in addition to the versions of the weights, the optimizer's
/// state and the gradient that is being computed. The unit is a vector as long as the parameters of
/// a task.
struct protocol_memory {
  /// Number of vectors on a worker, if the run has several workers.
  std::size_t worker = 0;
  /// Number of vectors on a shard.
  std::size_t shard = 0;
};

/// The traits of a protocol: everything that the rest of the program needs to know about it. Plain
/// data; any thread may call the functions.
struct protocol_traits {
  proto::Protocol id = proto::PROTOCOL_UNSET;
  /// The name in reports and on the command line: "async_ps".
  std::string name;
  weights_at weights = weights_at::shards;
  /// True if workers are *in step*: every step needs all workers, so all workers make the same
  /// number of steps.
  bool in_step = false;
  /// True if the run ends when a worker is lost. Always true if `in_step` is true.
  bool needs_all = false;
  /// True if workers can normalize over the samples of all workers (batch_norm.sync). This requires
  /// that they are in step, and that the protocol passes a ring_node for sums to each of them
  /// (worker_site::give).
  bool sums_over_workers = false;
  /// True if a worker on a GPU may keep its replica there (worker_site::replica).
  bool replica_on_gpu = false;
  /// True if workers of one process may add up their gradients on their GPUs. If they do
  /// (replica_home::in_ring), the synchronizer calls replica_store::add_up, which adds up a segment
  /// on this GPU, and then gather, which copies the other segments.
  bool adds_on_gpus = false;
  /// True if all workers and shards must be in one process.
  bool one_process = false;
  /// True if shard 0 needs to know which workers are idle (proto::IdleWorkers). An idle worker has
  /// no lease (range of samples to train).
  bool tells_idle = false;
  /// True if shards buffer gradients before they make an update. At the end of an epoch, all shards
  /// are told that all workers are idle, and make an update with the gradients in the buffer.
  bool holds_back = false;
  /// True if a worker computes its next gradient before other tasks have accepted or rejected its
  /// previous gradient.
  bool overlaps = false;
  /// True if a worker and a shard on different hosts exchange gradients and weights in pieces.
  bool in_pieces = false;
  /// True if the tasks can exchange gradients, and weights if they exchange any, as bfloat16
  /// (Job.exchange_precision).
  bool exchanges_bfloat16 = false;
  /// True if the first rank must send its final report before the other ranks are asked for theirs.
  /// Until this report, the first rank may still change the other ranks' numbers of gradients.
  bool first_reports_alone = false;
  /// Largest value of Job.pull_ahead. 0 if workers do not pull weights while they compute.
  std::uint32_t most_ahead = 0;
  /// The tasks that decide whether a gradient is applied, as text: "parameter server".
  std::string decided_by;
  /// How the weights of all workers are combined, as text for `troupe check`.
  std::function<std::string(const proto::Job&)> exchange;
  /// The name of the job field that only this protocol reads; empty if there is none.
  std::string settings = {};
  /// Checks the field named by `settings`. Called if the job has this protocol. Null if there is
  /// nothing to check.
  std::function<void(const proto::Job&, problem_list&)> validate = {};
  /// Checks the field named by `settings` against the number of workers. Called as soon as this
  /// number is known. Null if there is nothing to check.
  std::function<void(const proto::Job&, std::size_t workers, problem_list&)> validate_workers = {};
  /// Adjusts these traits to the job's values in the field `settings`. Null if there is nothing to
  /// adjust.
  std::function<void(const proto::Job&, protocol_traits&)> adapt = {};
  /// Number of gradients that form an update, for this number of workers. If it is null,
  /// gradients_of_step() returns a default.
  std::function<std::size_t(const proto::Job&, std::size_t workers)> step_gradients = {};
  /// Number of steps that a worker makes before it waits for other tasks. Null if a worker waits in
  /// every step.
  std::function<std::uint64_t(const proto::Job&)> steps_between_waits = {};
  protocol_memory memory = {};
  /// Number of additional vectors of optimizer state on a shard, for this number of workers. Null
  /// if there are none.
  std::function<std::size_t(const proto::Job&, std::size_t workers)> shard_state = {};

  /// Number of steps that a worker makes between two waits for other tasks.
  std::uint64_t waits_after(const proto::Job& job) const {
    return steps_between_waits ? steps_between_waits(job) : 1;
  }

  /// Number of gradients that form an update, for this number of workers.
  std::size_t gradients_of_step(const proto::Job& job, std::size_t workers) const {
    return step_gradients ? step_gradients(job, workers) : in_step ? workers : 1;
  }

  bool uses_shards() const noexcept { return weights == weights_at::shards; }

  /// Number of parameter shards if the user does not set it.
  std::uint32_t default_shards() const noexcept { return uses_shards() ? 1 : 0; }
};

/// The protocols that are part of troupe.
std::span<const protocol_traits> builtin_traits();

/// The names of troupe's protocols and of a program's own protocols.
std::vector<std::string> protocol_names(std::span<const protocol_traits> own = {});

/// The traits of the job's protocol; null if there are none.
/// @param own protocols that the program adds: a job with protocol CUSTOM names one of them
const protocol_traits* find_traits(const proto::Job& job,
                                   std::span<const protocol_traits> own = {});

/// Like find_traits(), but throws input_error if there are no traits. The error lists the known
/// names.
const protocol_traits& traits_of(const proto::Job& job, std::span<const protocol_traits> own = {});

/// The traits, adjusted to this job: see protocol_traits::adapt.
protocol_traits adapted_traits(const proto::Job& job, std::span<const protocol_traits> own = {});

/// Throws input_error if the job's protocol does not allow this number of workers.
void check_workers(const proto::Job& job, std::size_t workers,
                   std::span<const protocol_traits> own = {});

/// Checks the job's protocol and the field of its settings. Refuses the fields of other protocols.
void check_protocol(const proto::Job& job, std::span<const protocol_traits> own,
                    problem_list& problems);

/// The value of a parameter of `custom_protocol`; empty if the job does not give it.
std::string custom_parameter(const proto::Job& job, const std::string& name);

} // namespace troupe
