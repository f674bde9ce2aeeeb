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

// What the coordinator's four actors say to each other. Three of them take their orders and hear
// from others through the first, `coordinator` (membership):
//
//   membership --> run        who takes part; all that workers say; who is lost
//   membership --> captures   parts of versions, results of evaluations
//   membership --> progress   what tasks do
//   run        --> captures   take a snapshot; nothing more will come
//   captures   --> run        it is taken, evaluated; all is done; which checkpoint is the newest
//   run, captures --> progress   notices, reports, what is waited for; the end of the run
//   progress   --> membership   all is written: tell everybody of the end

namespace troupe {

/// The tasks that decide on gradients, and hold the state that checkpoints keep.
using reporter_actor = caf::typed_actor<rpc<proto::Report, proto::ReportRequest>,
                                        rpc<proto::Ack, proto::Restore, payload>>;

/// The actors that take part in training, once all are reached.
struct cluster_handles {
  /// By rank.
  std::vector<worker_actor> workers;
  /// Empty where ranks decide on gradients.
  std::vector<shard_actor> shards;
  /// Together they read all weights, in order; their tasks, and what each has.
  std::vector<reader_actor> readers;
  std::vector<task_name> reader_tasks;
  std::vector<range> reader_parts;
  /// Shards, or ranks; what each sends of a version, and what it is given to begin with.
  std::vector<reporter_actor> reporters;
  std::vector<range> parts;
  std::vector<range> restored;
};

// -- from membership ------------------------------------------------------------------------------

/// Who takes part, before any of them has begun.
struct view_opened {
  troupe::view view;
};

/// All are reached: train. No handles: nobody trains, and the weights are solved for.
struct begin_run {
  std::shared_ptr<const cluster_handles> handles;
};

/// A task that took part is gone.
struct task_lost {
  task_name task;
  std::string reason;
};

/// The run cannot go on, or is not to.
struct end_run {
  std::string reason;
  bool interrupted = false;
  /// Weights or loss of this epoch (from 0) are not finite.
  std::optional<std::uint32_t> not_finite_in = std::nullopt;
};

// -- between run and captures ---------------------------------------------------------------------

/// An epoch is trained: read the weights, and have them evaluated.
struct take_snapshot {
  /// With what training knows; the evaluation's results are filled in.
  epoch_report report;
  /// The weights at the end of the run.
  bool last = false;
};

/// The weights are read: they may change again.
struct snapshot_taken {
  std::uint64_t version = 0;
};

/// Weights that were solved for, to be evaluated like a snapshot.
struct evaluate_solution {
  epoch_report report;
  payload weights;
};

/// The weights at the end of an epoch were evaluated. Without the weights.
struct snapshot_evaluated {
  evaluated result;
};

/// A version is complete: what has the run to say to it? `marks`: for a checkpoint, what of each
/// worker's gradients it holds, in order of rank.
struct capture_question {
  std::uint64_t version = 0;
  std::vector<lease_mark> marks = {};
  std::uint64_t newest_lease = 0;
};

struct capture_context {
  /// As of now, within an epoch.
  epoch_report report;
  /// What remains to be trained behind the marks, where it is remembered.
  std::optional<lease_cut> cut;
};

/// This checkpoint is on disk.
struct checkpoint_kept {
  std::string path;
};

/// No more versions are made; those up to these are on their way.
struct finish_captures {
  std::uint64_t captured = 0;
  std::uint64_t captured_to_evaluate = 0;
};

/// All that was captured is evaluated and written, or was given up.
struct captures_done {};

// -- to progress ----------------------------------------------------------------------------------

/// Training begins. `at_work`: those that can hold it up.
struct watch_tasks {
  std::vector<task_name> all;
  std::vector<task_name> idle;
  std::vector<task_name> at_work;
};

/// What a worker says that it did.
struct worker_heard {
  task_name task;
  proto::Progress progress;
};

/// The task takes no part any more; "left", "is gone".
struct task_ended {
  task_name task;
  std::string how;
};

/// Something moved that no task tells of.
struct moved_on {};

/// Where the run stands, four times a second.
struct run_state {
  /// What training knows; tasks are filled in. Nothing while nobody trains.
  std::optional<run_progress> progress;
  coordinator_wait wait;
  /// The run itself waits for captures.
  bool for_captures = false;
};

/// For whom, or what, captures wait.
struct captures_wait {
  coordinator_wait wait;
};

/// Tasks are as they will stand in the summary.
struct training_ended {};

/// The end: write this, and all before, and then pass it on.
struct conclude_run {
  run_summary summary;
  /// Updates of the shards, in order; empty where they were not counted.
  std::vector<std::uint64_t> updates;
};

/// All is written, or cannot be.
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
TROUPE_LOCAL_MESSAGE(troupe::checkpoint_kept)
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

// Each as the others see it.

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
  rpc<void, checkpoint_kept>, rpc<void, captures_done>>;

/// Who answers captures' questions.
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
                   rpc<void, evaluate_solution>, rpc<void, finish_captures>>;

/// Membership, as progress sees it: all is written; the output has failed.
using conclusion_listener = caf::typed_actor<rpc<void, run_over>, rpc<void, end_run>>;

/// How long the coordinator's requests may take.
inline patience requests_of(const proto::Job& job) {
  return {std::chrono::milliseconds{job.runtime().request_timeout_ms()}, 3};
}

} // namespace troupe
