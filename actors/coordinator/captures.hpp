#pragma once

#include "actors/checkpoint/checkpoint_assembly.hpp"
#include "actors/checkpoint/checkpoint_manifest.hpp"
#include "actors/checkpoint/checkpoint_writer.hpp"
#include "actors/coordinator/coordinator_parts.hpp"
#include "actors/coordinator/epoch_weights.hpp"
#include "actors/model/data_builder.hpp"
#include "actors/spawner.hpp"
#include "actors/tick.hpp"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

struct captures_options {
  std::shared_ptr<const job_context> context;
  job_data data;
  /// Directory for checkpoints. Empty if the run writes none.
  std::string output;
  std::shared_ptr<storage> files;
  /// Version of the weights at the start of this run. 0 if the run does not continue from a
  /// checkpoint.
  std::uint64_t first_version = 0;
  /// A mark for each worker: its last gradient in the checkpoint from which the run continues. The
  /// mark also has the worker's loss scale, which is used until the worker's first gradient in this
  /// run.
  std::vector<checkpoint_mark> resumed_marks;
  /// The best evaluation before this run, if this run continues an earlier run.
  best_evaluation best;
  /// May be null.
  run_observer observer;
  weights_listener weights;
  troupe::spawner spawner;
  /// The device for evaluations on this node.
  testing_device device;
  progress_actor progress;
};

using captures_shell =
  captures_actor::extend<rpc<void, evaluated>, rpc<void, checkpoint_written>, rpc<void, tick>>;

/// The third of the coordinator's four actors. It collects versions of the weights for evaluations
/// and checkpoints. At the end of an epoch, it reads a snapshot (all weights of one version).
/// Within an epoch, the shards or ranks send *captures* (copies of their part of a version) by
/// themselves. This actor checks and joins the parts, and passes each version to an evaluator or to
/// the checkpoint writer.
///
/// This actor answers each part at once, without waiting for the disk or for an evaluation. If
/// versions arrive faster than they can be evaluated or written, it skips some of them
/// (checkpoint_assembly), and the operator gets one notice. The end of every epoch is evaluated. If
/// two earlier epochs are not evaluated yet, the next epoch must wait.
class captures : public captures_shell::base {
public:
  using super = captures_shell::base;

  captures(caf::actor_config& cfg, captures_options options);

  const char* name() const override { return "troupe.captures"; }
  std::uint64_t view_number() const noexcept { return view_.number; }

protected:
  behavior_type make_behavior() override;
  /// Ends the evaluator and the writer. Drops handles to actors that hold a handle to this actor,
  /// because CAF never frees actors that hold handles to each other.
  void on_exit() override;

private:
  using time_point = std::chrono::steady_clock::time_point;
  using snapshot = evaluate;

  // -- at the end of an epoch --
  void on_take(const take_snapshot& x);
  void read_snapshot();
  void on_part_read(std::size_t index, const proto::Weights& header, const payload& data);
  std::string misfit(std::size_t index, const proto::Weights& header, const payload& data) const;

  // -- parts from shards and ranks --
  void on_begin(const begin_run& x);
  caf::result<proto::Ack> on_part(const proto::CheckpointPart& x, const payload& data);
  void report_missed(checkpoint_assembly& of, std::uint64_t& told, bool to_evaluate);
  void next_evaluation();
  void evaluate_version(assembled_checkpoint whole, const epoch_report& report);
  void next_checkpoint();
  void write(const assembled_checkpoint& whole, std::vector<checkpoint_mark> marks,
             const lease_cut& cut);
  void write_held();
  void on_written(const checkpoint_written& x);
  void end_checkpoint(std::uint64_t version, const std::string& problem);

  // -- evaluations --
  void begin_evaluation(evaluate what, const epoch_report& report);
  void on_evaluated(const evaluated& x);
  bool compares() const;
  void compare(const epoch_report& report, const evaluated& x);
  void end_if_worse(std::uint64_t version);
  void keep_snapshot(const epoch_report& report, const evaluated& x);
  std::size_t snapshots_evaluating() const;
  std::chrono::nanoseconds evaluation_time() const;

  // -- the end --
  void on_finish(const finish_captures& x);
  void end_if_done();
  caf::result<proto::Ack> on_end();
  void on_down(const caf::down_msg& x);
  void on_tick();

  void report_wait();
  coordinator_wait wait() const;
  void notice(const std::string& text, notice_level level = notice_level::info);
  void fail(const std::string& reason);
  const proto::Job& job() const { return options_.context->job; }
  patience requests() const { return requests_of(job()); }

  captures_options options_;
  run_actor run_;
  troupe::view view_;
  std::shared_ptr<const cluster_handles> handles_;
  evaluations_actor evaluator_;
  /// Null if the job writes no checkpoints.
  checkpoint_writer_actor writer_;

  /// Set if an epoch has ended and its weights have not been read yet.
  std::optional<take_snapshot> wanted_;
  snapshot snapshot_;
  bool without_delay_ = false;
  std::size_t snapshot_missing_ = 0;

  std::uint64_t evaluations_begun_ = 0;
  /// The evaluations in progress, by number, and the reports that need their results.
  std::map<std::uint64_t, epoch_report> evaluating_;
  /// The newest version that keep_snapshot() has kept.
  std::uint64_t newest_kept_ = 0;
  /// First: when the current evaluation began, if there is one. Second: the duration of the longest
  /// evaluation so far.
  time_point evaluation_began_;
  std::chrono::nanoseconds longest_evaluation_{0};

  /// Two collectors that join captures into complete versions: the first for evaluations within an
  /// epoch, the second for checkpoints.
  std::optional<checkpoint_assembly> to_evaluate_;
  std::optional<checkpoint_assembly> checkpoints_;
  std::uint64_t missed_evaluations_reported_ = 0;
  std::uint64_t missed_checkpoints_reported_ = 0;
  /// A checkpoint that stores the best evaluation so far, and therefore waits for evaluations; and
  /// the number of the last evaluation that it waits for.
  std::optional<write_checkpoint> held_;
  std::uint64_t held_for_ = 0;
  /// Set when the run ends: at this time, `held_` is written even if evaluations are still missing.
  std::optional<time_point> hold_limit_;
  /// If the run ends early, within an epoch: the number of its last snapshot. Otherwise 0.
  std::uint64_t early_end_ = 0;
  /// The versions that this run has compared with the best evaluation. If this run continues an
  /// earlier run: the newest version that was compared before.
  std::set<std::uint64_t> compared_;
  std::uint64_t counted_before_;
  /// Number of checkpoints that could not be written: in a row, and in total.
  std::size_t checkpoints_failing_ = 0;
  std::size_t checkpoints_failed_ = 0;
  std::optional<finish_captures> finish_;
  /// Number of actors that this actor started and that have not ended.
  std::size_t children_ = 1;
  /// The answer to end_captures, which arrives when the view is over. The answer is sent when all
  /// actors that this actor started have ended.
  std::optional<caf::typed_response_promise<proto::Ack>> ended_;
  /// The last wait that was reported to `progress`.
  coordinator_wait wait_;
};

} // namespace troupe
