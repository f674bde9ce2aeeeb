#pragma once

#include "actors/checkpoint/checkpoint.hpp"
#include "actors/coordinator/coordinator_parts.hpp"
#include "actors/coordinator/exact_solver.hpp"
#include "actors/coordinator/loss_watch.hpp"
#include "actors/coordinator/run_book.hpp"
#include "actors/model/data_builder.hpp"
#include "actors/spawner.hpp"
#include "actors/tick.hpp"

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct training_run_options {
  std::shared_ptr<const job_context> context;
  job_data data;
  /// The checkpoint to continue from. Null to start from the beginning.
  std::shared_ptr<const checkpoint> resume;
  /// Initial weights of a run without a checkpoint. If empty, the initializers of the layers are
  /// used.
  payload initial;
  /// Loss of a model that ignores the features: see constant_guess_loss(). Empty if unknown.
  std::optional<double> constant_guess;
  /// Number of workers in the cluster.
  std::uint64_t workers = 0;
  /// Number of earlier views (lists of members) of the same run.
  std::uint64_t views_before = 0;
  /// Output directory. Empty if the run writes no output.
  std::string output;
  troupe::spawner spawner;
  captures_actor captures;
  progress_actor progress;
};

using training_run_shell = run_actor::extend<rpc<void, solved>, rpc<void, tick>>;

/// The second of the coordinator's four actors. It leads a run from the beginning to the end. It
/// sends the initial weights, leases the samples of one epoch after the other to workers, and
/// requests a snapshot of the weights after each epoch. If a worker leaves or is lost, the run
/// continues if the protocol allows it. At the end, this actor checks that every gradient is
/// accounted for (ledger.hpp).
///
/// All weights of a snapshot belong to one version. For this, the leases of the next epoch wait
/// until every gradient of the epoch is decided and the weights are read. The evaluation itself
/// runs in parallel with the next epoch.
class training_run : public training_run_shell::base {
public:
  using super = training_run_shell::base;

  training_run(caf::actor_config& cfg, training_run_options options);

  const char* name() const override { return "troupe.run"; }
  /// The number of the open view. If no view is open, a number that no message contains.
  std::uint64_t view_number() const noexcept { return book_ ? view_.number : no_view; }

protected:
  behavior_type make_behavior() override;
  /// Ends the solver. Drops handles to actors that hold a handle to this actor, because CAF never
  /// frees actors that hold handles to each other.
  void on_exit() override;

private:
  static constexpr std::chrono::milliseconds tick_interval{250};
  static constexpr auto no_view = std::numeric_limits<std::uint64_t>::max();
  enum class phase { opening, training, solving, snapshot, finishing, done };
  using time_point = std::chrono::steady_clock::time_point;

  // -- the beginning --
  void on_view(const view_opened& x);
  /// Tells the operator how many samples a step has with the workers that are present.
  void report_batch();
  void on_begin(const begin_run& x);
  void restore();
  /// The initial state of a reporter (a shard, or the replica of a ring rank).
  struct initial_state {
    /// One vector of all parameters per slot. Slot 0 is the weights; the other slots are the state
    /// of the optimizer.
    std::vector<payload> slots;
    /// See proto::Restore::updates.
    std::optional<std::uint64_t> updates;
  };
  std::vector<initial_state> states_of(const checkpoint& from);
  void hand_over(proto::Restore order, const std::vector<initial_state>& all);
  void start_training();
  void watch();
  void start_solver();
  void on_solved(const solved& x);

  // -- training --
  void give_leases();
  void report_idle(std::vector<std::uint32_t> workers, std::function<void()> then);
  void begin_epoch();
  void go_on();
  void snapshot();
  void apply_held_back(std::function<void()> then);
  void on_snapshot(const snapshot_taken& x);
  caf::result<proto::Ack> on_lease_request(const proto::LeaseRequest& x);
  caf::result<proto::Ack> on_lease_done(const proto::LeaseDone& x);
  void on_heartbeat(const proto::Heartbeat& x);
  capture_context on_question(const capture_question& x);
  void on_tick();
  run_state state();
  epoch_report report(bool live);

  // -- workers that leave --
  caf::result<proto::Ack> on_leave(const proto::Leave& x);
  void on_failure(const proto::Failure& x);
  void on_task_lost(const task_lost& x);
  void on_worker_lost(run_book::worker& who, const std::string& reason);
  bool too_few() const;
  void let_go(const run_book::worker& who);
  void fence(std::size_t rank, const proto::Fence& order);
  void on_fenced(std::size_t rank, proto::Fence order, const std::vector<proto::Fenced>& answers);

  // -- the end --
  void stop(const std::string& reason, bool interrupted);
  void on_end_early(const end_early& x);
  bool ends_soon() const noexcept { return stopping_ || !summary_.ended_early.empty(); }
  void check_deadline();
  /// True if the weights at the end of the last epoch and all counts are known. The run then only
  /// waits for evaluations and checkpoints, so it may lose any other task.
  bool needs_nobody() const;
  bool state_is_written() const;
  void finish();
  std::uint64_t last_version() const;
  void end_cut_short();
  void collect_reports();
  void collect_report(std::size_t i);
  void finish_captures_of_reports();
  void settle_accounts();
  void end(const end_run& x);
  void fail(const std::string& reason, bool interrupted = false);
  /// The end of an error about the loss of this task: its address, and how to continue.
  std::string after_loss_of(const task_name& task) const;
  /// Ends the run because a task that it needs failed, left, or was lost.
  void fail_without_task(const std::string& reason, const std::optional<task_name>& missing = {});
  void fail_not_finite(const std::string& reason, std::uint32_t epoch);
  void conclude();

  void notice(const std::string& text, notice_level level = notice_level::info);
  const proto::Job& job() const { return options_.context->job; }
  patience requests() const { return requests_of(job()); }
  /// True if the coordinator itself computes the weights (exact solver), and no task trains.
  bool solves() const { return job().solver() == proto::EXACT; }

  training_run_options options_;
  phase phase_ = phase::opening;
  troupe::view view_;
  std::shared_ptr<const cluster_handles> handles_;
  std::optional<run_book> book_;
  std::optional<loss_watch> loss_watch_;
  std::optional<time_point> began_;
  /// The idle workers in the newest message of report_idle() to the shards; and the number of such
  /// messages so far.
  std::vector<std::uint32_t> idle_;
  std::uint64_t idle_reports_ = 0;
  /// The solver while it runs; otherwise null.
  caf::actor solver_;
  /// The newest checkpoint on disk: this run has written it, or has continued from it.
  std::string last_checkpoint_;
  /// Set while a stopped run still writes a checkpoint. `interrupted` is true if the operator has
  /// stopped the run. At the deadline, the run ends even if the checkpoint is not written.
  struct stopping {
    std::string reason;
    bool interrupted;
    time_point deadline;
  };
  std::optional<stopping> stopping_;
  /// True if the run ends with a checkpoint before all epochs are trained.
  bool cut_short_ = false;
  /// The step at which this run began.
  std::uint64_t first_step_ = 0;
  /// The result of the last evaluated epoch.
  evaluated last_;

  std::vector<proto::Report> reports_;
  std::size_t reports_missing_ = 0;
  /// If the run ends early: the message for `captures`, which is sent when the last snapshot is
  /// taken.
  std::optional<finish_captures> last_captures_;
  run_summary summary_;
};

} // namespace troupe
