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

#include <memory>
#include <optional>
#include <string>
#include <vector>

// Messages between the coordinator's four actors. The first one, `coordinator` (membership),
// forwards the messages of other nodes:
//
//   membership --> run        the members; all messages of workers; lost workers
//   membership --> captures   parts of versions, results of evaluations
//   membership --> progress   reports of tasks
//   run        --> captures   take a snapshot; no more versions will come
//   captures   --> run        snapshot taken or evaluated; all done; the newest checkpoint
//   run, captures --> progress   notices, reports, current waits; the end of the run
//   progress   --> membership   everything is written: end all nodes

namespace troupe {

/// An actor that decides about gradients and holds the state for checkpoints: a shard or the
/// replica of a ring rank.
using reporter_actor = caf::typed_actor<rpc<proto::Report, proto::ReportRequest>,
                                        rpc<proto::Ack, proto::Restore, payload>>;

/// The actors that take part in training. Made when all of them are reached.
struct cluster_handles {
  /// In the order of ranks.
  std::vector<worker_actor> workers;
  /// Empty if the protocol has no shards: then the ranks of the workers decide about gradients.
  std::vector<shard_actor> shards;
  /// The actors that together provide all weights, in order; their tasks; and the range that each
  /// of them provides.
  std::vector<reader_actor> readers;
  std::vector<task_name> reader_tasks;
  std::vector<range> reader_parts;
  /// Shards or ranks; the part of a version that each of them sends for a checkpoint; and the range
  /// of weights that each of them receives from a checkpoint.
  std::vector<reporter_actor> reporters;
  std::vector<range> parts;
  std::vector<range> restored;
};

// -- from membership ------------------------------------------------------------------------------

/// The members, before training begins.
struct view_opened {
  troupe::view view;
};

/// All tasks are reached, so training begins. If there are no handles, no task trains, and the
/// coordinator solves for the weights.
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
  /// Set if the weights or the loss of this epoch (counted from 0) are not finite.
  std::optional<std::uint32_t> not_finite_in = std::nullopt;
  /// True if a task failed, left, or was lost.
  bool lost_task = false;
};

// -- between run and captures ---------------------------------------------------------------------

/// An epoch is trained. `captures` reads the weights and evaluates them.
struct take_snapshot {
  /// The evaluation's results are filled in later.
  epoch_report report;
  /// True if these are the weights at the end of the run.
  bool last = false;
};

/// The weights have been read. From now on they may change again.
struct snapshot_taken {
  std::uint64_t version = 0;
};

/// Weights from the exact solver. They are evaluated like a snapshot.
struct evaluate_solution {
  epoch_report report;
  payload weights;
};

/// The weights at the end of an epoch were evaluated. This message does not contain them.
struct snapshot_evaluated {
  evaluated result;
};

/// Asks for the run's state at a version of which all parts have arrived. For a checkpoint, `marks`
/// names the last gradient of each worker in this version, in order of rank.
struct capture_question {
  std::uint64_t version = 0;
  std::vector<lease_mark> marks = {};
  std::uint64_t newest_lease = 0;
};

struct capture_context {
  /// The run's state within an epoch.
  epoch_report report;
  /// The samples that remain to be trained after the marks, if still known.
  std::optional<lease_cut> cut;
};

/// For a checkpoint at the end of the run, the shards or ranks are now asked for their last
/// version.
struct expect_last_version {};

/// Evaluations no longer get better, so the run ends, without failure.
struct end_early {
  std::string reason;
};

/// This checkpoint is on disk.
struct checkpoint_kept {
  std::string path;
};

/// The view is over. `captures` ends the writer and the evaluations. The answer comes when they
/// have ended.
struct end_captures {};

/// No new versions follow. Parts of versions up to `captured` (for checkpoints) and
/// `captured_to_evaluate` may still be in transit.
struct finish_captures {
  std::uint64_t captured = 0;
  std::uint64_t captured_to_evaluate = 0;
};

/// Every capture (version that shards or ranks sent) was evaluated or written, or was given up.
struct captures_done {};

// -- to progress ----------------------------------------------------------------------------------

/// Training begins. `idle` are the tasks that take no part, and `at_work` the tasks that can block
/// it.
struct watch_tasks {
  std::vector<task_name> all;
  std::vector<task_name> idle;
  std::vector<task_name> at_work;
};

/// A worker has reported its progress.
struct worker_heard {
  task_name task;
  proto::Progress progress;
};

/// The task no longer takes part; `how` is "left" or "is gone".
struct task_ended {
  task_name task;
  std::string how;
};

/// The run made progress that no task's report shows.
struct moved_on {};

/// State of the run, four times a second.
struct run_state {
  /// The states of tasks are filled in later. Absent if no task trains.
  std::optional<run_progress> progress;
  coordinator_wait wait;
  /// True if the run waits for the actor `captures`.
  bool for_captures = false;
};

/// The result that `captures` waits for now.
struct captures_wait {
  coordinator_wait wait;
};

/// Training is over. `progress` keeps the present states of the tasks for the summary.
struct training_ended {};

/// The end of the run. `progress` writes all queued records, then this summary, and forwards the
/// result.
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

// The messages that each actor accepts from the others.

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

/// Sent to `captures`: the actor that answers its questions.
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
                   rpc<void, evaluate_solution>, rpc<void, expect_last_version>,
                   rpc<void, finish_captures>, rpc<proto::Ack, end_captures>>;

/// The messages from progress to membership. run_over: everything is written. end_run: the output
/// has failed.
using conclusion_listener = caf::typed_actor<rpc<void, run_over>, rpc<void, end_run>>;

/// The failure that a task reports if its operator stops it while the run needs it for a
/// checkpoint. The task continues to work until the coordinator ends the run.
proto::Failure stopped_task(const task_name& task, const std::string& reason);

/// A run that was stopped ends after this time, even if its checkpoint is not written. Kubernetes
/// kills a pod 30 seconds after SIGTERM.
constexpr std::chrono::seconds stopping_limit{20};

/// Deadlines of the coordinator's requests.
inline patience requests_of(const proto::Job& job) {
  return {std::chrono::milliseconds{job.runtime().request_timeout_ms()}, 3};
}

} // namespace troupe
