#pragma once

#include "actors/ask.hpp"
#include "actors/coordinator/evaluations.hpp"
#include "actors/coordinator/stall_judge.hpp"
#include "actors/leases/lease_book.hpp"
#include "actors/output/recorder.hpp"
#include "actors/output/run_report.hpp"
#include "actors/view.hpp"
#include "kernels/range.hpp"
#include "messages/interfaces.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Messages between the coordinator's four actors: `coordinator` (here: membership), `training_run`
// (run), `captures` and `progress`. Membership forwards the messages of other nodes:
//
//   membership --> run        the members; all messages of workers; lost workers
//   membership --> captures   parts of versions, results of evaluations
//   membership --> progress   reports of tasks
//   run        --> captures   take a snapshot; no more versions will come
//   captures   --> run        snapshot taken or evaluated; all done; the newest checkpoint
//   run, captures --> progress   notices, reports, current waits; the end of the run
//   progress   --> membership   everything is written: end all nodes

namespace troupe {

/// An actor that decides whether gradients are applied, and holds the state for checkpoints: a
/// shard, or the replica of a ring rank.
using reporter_actor = caf::typed_actor<rpc<proto::Report, proto::ReportRequest>,
                                        rpc<proto::Ack, proto::Restore, payload>>;

/// The actors that take part in training. This list exists when all of them are reached.
struct cluster_handles {
  /// The workers, in the order of their ranks.
  std::vector<worker_actor> workers;
  /// Empty if the protocol has no shards. The workers' ranks then decide about gradients.
  std::vector<shard_actor> shards;
  /// Three lists of equal length. First the actors from which the coordinator reads the weights:
  /// they provide all weights together, in order. Then the task of each actor, and its range of
  /// weights.
  std::vector<reader_actor> readers;
  std::vector<task_name> reader_tasks;
  std::vector<range> reader_parts;
  /// Three lists of equal length. First all shards or ranks. Then the range of weights that each of
  /// them sends for a checkpoint, and the range that it receives from a checkpoint.
  std::vector<reporter_actor> reporters;
  std::vector<range> parts;
  std::vector<range> restored;
};

// -- from membership ------------------------------------------------------------------------------

/// The members of the view, sent before training begins.
struct view_opened {
  troupe::view view;
};

/// All tasks are reached, so training begins. If `handles` is null, no task trains, and the
/// coordinator itself computes the weights (exact solver).
struct begin_run {
  std::shared_ptr<const cluster_handles> handles;
};

/// A member of the view is lost.
struct task_lost {
  task_name task;
  std::string reason;
};

/// The run cannot continue, or was stopped.
struct end_run {
  std::string reason;
  bool interrupted = false;
  /// The epoch (counted from 0) in which the weights or the loss were not finite. Empty if they are
  /// finite.
  std::optional<std::uint32_t> not_finite_in = std::nullopt;
  /// True if a task failed, left, or was lost.
  bool lost_task = false;
  /// True if the run only stops so that it can continue in another view.
  bool next_view = false;
};

// -- between run and captures ---------------------------------------------------------------------

/// The samples of an epoch are trained. `captures` now reads the weights and evaluates them.
struct take_snapshot {
  /// The report about the epoch. The results of the evaluation are added later.
  epoch_report report;
  /// True if these are the weights at the end of the run.
  bool last = false;
};

/// The weights of the snapshot have been read. From now on, training may change them again.
struct snapshot_taken {
  std::uint64_t version = 0;
};

/// Weights from the exact solver. They are evaluated like a snapshot.
struct evaluate_solution {
  epoch_report report;
  payload weights;
};

/// The weights at the end of an epoch were evaluated. The result does not contain the weights.
struct snapshot_evaluated {
  evaluated result;
};

/// Asks for the state of the run at a version of the weights. All parts of the version have
/// arrived. For a checkpoint, `marks` names the last gradient of each worker in this version, in
/// order of rank.
struct capture_question {
  std::uint64_t version = 0;
  std::vector<lease_mark> marks = {};
  std::uint64_t newest_lease = 0;
};

struct capture_context {
  /// The run's state within an epoch.
  epoch_report report;
  /// The samples that remain to be trained after the gradients in capture_question::marks. Empty if
  /// this is no longer known.
  std::optional<lease_cut> cut;
};

/// The run was stopped, and little time is left. If a snapshot waits until earlier ones are
/// evaluated, its weights are read now.
struct read_without_delay {};

/// The run ends with a checkpoint: the shards or ranks are now asked for their last version.
struct expect_last_version {};

/// Evaluations no longer get better, so the run ends early. This is not a failure.
struct end_early {
  std::string reason;
};

/// This checkpoint is on disk.
struct checkpoint_kept {
  std::string path;
};

/// The view is over. `captures` ends its writer and its evaluations, and answers when they have
/// ended.
struct end_captures {};

/// No new versions follow. Parts of earlier versions may still be in transit: up to version
/// `captured` for checkpoints, and up to version `captured_to_evaluate` for evaluations. See
/// checkpoint_assembly::finish.
struct finish_captures {
  std::optional<std::uint64_t> captured;
  std::uint64_t captured_to_evaluate = 0;
};

/// Every capture (a version that shards or ranks have sent) was evaluated or written, or was given
/// up.
struct captures_done {};

// -- to progress ----------------------------------------------------------------------------------

/// Training begins. `idle` are the tasks that take no part in it. `at_work` are the tasks that can
/// block it.
struct watch_tasks {
  std::vector<task_name> all;
  std::vector<task_name> idle;
  std::vector<task_name> at_work;
  /// Count the payloads on the links between the coordinator and these tasks.
  std::map<task_name, std::shared_ptr<payload_meter>> links;
  /// True if one of these tasks is on another host.
  bool network = false;
};

/// A worker has reported its progress.
struct worker_heard {
  task_name task;
  proto::Progress progress;
};

/// A task no longer takes part. `how` is "left" or "is gone".
struct task_ended {
  task_name task;
  std::string how;
};

/// The run made progress that is not in any task's report.
struct moved_on {};

/// The state of the run, sent four times a second.
struct run_state {
  /// The receiver adds the states of the tasks. Absent if no task trains.
  std::optional<run_progress> progress;
  coordinator_wait wait;
  /// True if the run waits for the actor `captures`.
  bool for_captures = false;
};

/// What `captures` waits for now.
struct captures_wait {
  coordinator_wait wait;
};

/// Training is over. `progress` keeps the current states of the tasks for the summary.
struct training_ended {};

/// The end of the run. `progress` writes all queued records, then this summary. Then it sends
/// run_over to `coordinator`.
struct conclude_run {
  run_summary summary;
  /// Number of updates of each shard, in order; empty if unknown.
  std::vector<std::uint64_t> updates;
};

/// Everything is written, or writing has failed.
struct run_over {
  run_summary summary;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::view_opened)
TROUPE_LOCAL_MESSAGE(troupe::begin_run)
TROUPE_LOCAL_MESSAGE(troupe::task_lost)
TROUPE_LOCAL_MESSAGE(troupe::end_run)
TROUPE_LOCAL_MESSAGE(troupe::take_snapshot)
TROUPE_LOCAL_MESSAGE(troupe::snapshot_taken)
TROUPE_LOCAL_MESSAGE(troupe::evaluate_solution)
TROUPE_LOCAL_MESSAGE(troupe::snapshot_evaluated)
TROUPE_LOCAL_MESSAGE(troupe::capture_question)
TROUPE_LOCAL_MESSAGE(troupe::capture_context)
TROUPE_LOCAL_MESSAGE(troupe::read_without_delay)
TROUPE_LOCAL_MESSAGE(troupe::expect_last_version)
TROUPE_LOCAL_MESSAGE(troupe::end_early)
TROUPE_LOCAL_MESSAGE(troupe::checkpoint_kept)
TROUPE_LOCAL_MESSAGE(troupe::end_captures)
TROUPE_LOCAL_MESSAGE(troupe::finish_captures)
TROUPE_LOCAL_MESSAGE(troupe::captures_done)
TROUPE_LOCAL_MESSAGE(troupe::watch_tasks)
TROUPE_LOCAL_MESSAGE(troupe::worker_heard)
TROUPE_LOCAL_MESSAGE(troupe::task_ended)
TROUPE_LOCAL_MESSAGE(troupe::moved_on)
TROUPE_LOCAL_MESSAGE(troupe::run_state)
TROUPE_LOCAL_MESSAGE(troupe::captures_wait)
TROUPE_LOCAL_MESSAGE(troupe::training_ended)
TROUPE_LOCAL_MESSAGE(troupe::conclude_run)
TROUPE_LOCAL_MESSAGE(troupe::run_over)

namespace troupe {

// The messages that each of the four actors accepts from the others.

using progress_actor =
  caf::typed_actor<rpc<void, view_opened>, rpc<void, proto::TaskStatus>, rpc<void, watch_tasks>,
                   rpc<void, worker_heard>, rpc<void, task_ended>, rpc<void, moved_on>,
                   rpc<void, run_state>, rpc<void, captures_wait>, rpc<void, run_notice>,
                   rpc<void, epoch_report>, rpc<void, record_weights>, rpc<void, training_ended>,
                   rpc<void, conclude_run>>;

using run_actor = caf::typed_actor<
  rpc<void, view_opened>, rpc<void, begin_run>, rpc<void, task_lost>, rpc<void, end_run>,
  rpc<proto::Ack, proto::LeaseRequest>, rpc<proto::Ack, proto::LeaseDone>,
  rpc<void, proto::Heartbeat>, rpc<proto::Ack, proto::Leave>, rpc<void, proto::Failure>,
  rpc<void, snapshot_taken>, rpc<void, snapshot_evaluated>, rpc<capture_context, capture_question>,
  rpc<void, end_early>, rpc<void, checkpoint_kept>, rpc<void, captures_done>>;

/// Tells `captures` which actor answers its questions.
struct introduce {
  run_actor run;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::introduce)

namespace troupe {

using captures_actor =
  caf::typed_actor<rpc<void, introduce>, rpc<void, view_opened>, rpc<void, begin_run>,
                   rpc<void, use_evaluator>, rpc<proto::Ack, proto::CheckpointPart, payload>,
                   rpc<proto::Ack, proto::Evaluated>, rpc<void, take_snapshot>,
                   rpc<void, evaluate_solution>, rpc<void, read_without_delay>,
                   rpc<void, expect_last_version>, rpc<void, finish_captures>,
                   rpc<proto::Ack, end_captures>>;

/// The messages from progress to membership. run_over means that everything is written. end_run
/// means that the output has failed.
using conclusion_listener = caf::typed_actor<rpc<void, run_over>, rpc<void, end_run>>;

/// The message that a task sends if its operator stops it, but the run still needs the task to
/// write a checkpoint. The task works on until the coordinator ends the run.
proto::Failure stopped_task(const task_name& task, const std::string& reason);

/// A run that was stopped ends after this time, even if its checkpoint is not written. The limit is
/// below 30 seconds because Kubernetes kills a pod 30 seconds after SIGTERM.
constexpr std::chrono::seconds stopping_limit{20};

/// Deadlines of the coordinator's requests.
inline patience requests_of(const proto::Job& job) {
  return {std::chrono::milliseconds{job.runtime().request_timeout_ms()}, 3};
}

} // namespace troupe
