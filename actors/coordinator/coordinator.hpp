#pragma once

#include "actors/ask.hpp"
#include "actors/checkpoint/checkpoint_assembly.hpp"
#include "actors/checkpoint/checkpoint_writer.hpp"
#include "actors/coordinator/evaluations.hpp"
#include "actors/coordinator/exact_solver.hpp"
#include "actors/coordinator/lease_book.hpp"
#include "actors/coordinator/ledger.hpp"
#include "actors/coordinator/stall_judge.hpp"
#include "actors/coordinator/task_table.hpp"
#include "actors/output/recorder.hpp"
#include "actors/output/run_report.hpp"
#include "actors/spawner.hpp"
#include "actors/tick.hpp"
#include "actors/view.hpp"
#include "messages/interfaces.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Where is the actor of that name? Answered once it can be reached.
struct resolve {
  endpoint name;
};

struct resolved {
  caf::strong_actor_ptr actor;
};

/// The operator wants the run to end.
struct stop_run {
  std::string reason;
};

/// The weights after an epoch: all parameters as one flat vector, float32, in the order of
/// `job_context::parameters()`. The payload is shared: it is the copy that was evaluated.
struct epoch_weights {
  /// From 1.
  std::uint32_t epoch = 0;
  /// Updates applied since the initial weights.
  std::uint64_t version = 0;
  payload weights;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::resolve)
TROUPE_LOCAL_MESSAGE(troupe::resolved)
TROUPE_LOCAL_MESSAGE(troupe::stop_run)
TROUPE_LOCAL_MESSAGE(troupe::epoch_weights)

namespace troupe {

/// Whoever asks for the weights.
using weights_listener = caf::typed_actor<rpc<void, epoch_weights>>;

/// The coordinator's own node: finds actors for it, and hears of the end.
using coordinator_host = caf::typed_actor<rpc<resolved, resolve>, rpc<void, run_summary>>;

/// Whoever decides on gradients, and holds the state that checkpoints keep.
using reporter_actor = caf::typed_actor<rpc<proto::Report, proto::ReportRequest>,
                                        rpc<proto::Ack, proto::Restore, payload>>;

/// A task that the cluster file names.
struct expected_task {
  task_name task;
  /// Where its node should be; told to the operator who waits for it.
  std::string address;
};

struct coordinator_options {
  std::shared_ptr<const job_context> context;
  job_data data;
  std::vector<expected_task> tasks;
  /// Where results go; empty: nowhere.
  std::string output;
  std::shared_ptr<storage> files;
  /// For what is written there.
  run_origin origin;
  /// What the run goes on from; null: it begins at the beginning.
  std::shared_ptr<const checkpoint> resume;
  /// The weights that it begins with otherwise; empty: those of the initializers.
  payload initial;
  /// What the operator should know before it begins.
  std::vector<std::string> notices;
  /// May be null.
  run_observer observer;
  /// Gets the weights after each epoch; may be null.
  weights_listener weights;
  troupe::spawner spawner;
  coordinator_host host;
};

using coordinator_shell =
  coordinator_actor::extend<rpc<void, evaluated>, rpc<void, checkpoint_written>, rpc<void, solved>,
                            rpc<void, stop_run>, rpc<void, tick>>;

/// Runs a job: gathers the tasks, opens the view, leases data, takes a consistent snapshot at the
/// end of each epoch and has it evaluated, balances the ledger, and ends all processes. It never
/// touches a gradient.
///
/// A snapshot is consistent because the next epoch's leases are held back until every gradient of
/// this one is decided and the weights are taken; evaluation itself runs beside the next epoch.
class coordinator : public coordinator_shell::base {
public:
  using super = coordinator_shell::base;

  coordinator(caf::actor_config& cfg, coordinator_options options);

  const char* name() const override { return "troupe.coordinator"; }
  std::uint64_t view_number() const noexcept { return view_.number; }

protected:
  behavior_type make_behavior() override;
  /// Ends the evaluator and the recorder, and drops handles to actors that hold one of this.
  void on_exit() override;

private:
  enum class phase { gathering, opening, training, solving, snapshot, finishing, done };

  struct worker_state {
    worker_account account;
    worker_actor handle;
    /// Leases asked for and given so far.
    std::uint64_t asked = 0;
    std::uint64_t given = 0;
    bool present = true;
    /// Trained within the lease under way: for progress only.
    std::uint64_t live_samples = 0;
    double live_loss = 0;
    std::uint64_t live_loss_samples = 0;
    std::uint64_t rank = 0;

    task_name name() const { return {job_kind::worker, account.worker}; }

    /// Takes what the worker says of itself; a repeated message may come late, so counts only grow.
    void hear(const proto::Progress& x);
  };

  using time_point = std::chrono::steady_clock::time_point;

  // -- gathering and opening --
  caf::result<proto::Joined> on_join(const proto::Join& x);
  std::optional<std::string> refusal(const proto::Join& x, const task_name& task) const;
  void open_view();
  void open_at(const task_name& task);
  void open_evaluator(const task_name& task);
  bool expects(const task_name& task) const;
  bool all_joined() const;
  template <class Handle>
  void reach(const endpoint& name, std::function<void(Handle)> then);
  template <class Handle>
  void reach_for_training(const endpoint& name, Handle& where, bool watch = false);
  void reach_tasks();
  void report_waiting();
  void on_node_down(const task_name& task, const std::string& reason);

  // -- without training --
  void solve();
  void start_solver();
  void on_solved(const solved& x);

  // -- checkpoints --
  void restore();
  void hand_over(proto::Restore order, const std::vector<payload>& slots);
  caf::result<proto::Ack> on_checkpoint_part(const proto::CheckpointPart& x, const payload& data);
  void write(const assembled_checkpoint& x);
  void on_checkpoint_written(const checkpoint_written& x);
  caf::result<proto::Ack> on_part_to_evaluate(const proto::CheckpointPart& x, const payload& data);
  void end_step_evaluation(std::uint64_t version);
  void drop_late_evaluations();
  void drop_incomplete_evaluations();
  void end_checkpoint(std::uint64_t version, const std::string& problem);
  void drop_late_checkpoints();
  void await_checkpoints();

  // -- training --
  void start_training();
  void open_epoch(std::uint32_t epoch);
  void begin_epoch(std::uint32_t epoch);
  void give_leases();
  void count_trained(std::uint64_t samples, double loss_sum, std::uint64_t loss_samples);
  caf::result<proto::Ack> on_lease_request(const proto::LeaseRequest& x);
  caf::result<proto::Ack> on_lease_done(const proto::LeaseDone& x);
  void on_heartbeat(const proto::Heartbeat& x);
  caf::result<proto::Ack> on_leave(const proto::Leave& x);
  void on_failure(const proto::Failure& x);
  void on_down(const caf::down_msg& x);
  void on_worker_lost(std::size_t rank, const std::string& reason);
  void settle_vanished(std::size_t rank, const std::vector<proto::Decided>& decided);
  void go_on();
  template <class Header>
  worker_state* find_worker(const Header& x);

  // -- what tasks do --
  void watch_tasks();
  void on_status(const proto::TaskStatus& x);
  void hear(worker_state& worker, const proto::Progress& x);
  void lose_sight_of(const worker_state& worker, const std::string& how);
  void judge_stalls();
  coordinator_wait own_wait() const;
  std::chrono::nanoseconds evaluation_time() const;
  void summarize_tasks();

  // -- end of an epoch, end of the run --
  void take_snapshot();
  void on_snapshot_part(std::size_t index, const proto::Weights& header, const payload& data);
  epoch_report report_now();
  epoch_report report_in_the_midst(std::uint64_t step);
  void begin_evaluation(evaluate what, const epoch_report& report);
  void on_evaluated(const evaluated& x);
  void keep_snapshot(const epoch_report& report, const evaluated& x);
  void collect_reports();
  void settle_accounts();
  void fail(const std::string& reason, bool interrupted = false);
  void fail_not_finite(const std::string& reason, std::uint32_t epoch);
  void conclude();
  void flush_recorder(std::function<void(const std::string& problem)> then);
  void tell_unwritten(const std::string& problem);
  void shut_down_nodes();
  void node_ended();
  void on_tick();

  /// Actors of the coordinator's own that do what blocks.
  std::vector<caf::actor> helpers() const;
  void publish_progress();
  void notice(const std::string& text, notice_level level = notice_level::info);
  double seconds_since(time_point t);
  const proto::Job& job() const { return options_.context->job; }
  patience requests() const;
  /// The weights are solved for, here, and nobody trains.
  bool solves() const { return job().solver() == proto::EXACT; }
  bool uses_shards() const { return options_.context->protocol.uses_shards(); }
  /// Every step needs all workers.
  bool in_step() const { return options_.context->protocol.in_step; }

  coordinator_options options_;
  phase phase_ = phase::gathering;
  time_point began_;
  time_point training_began_;
  std::chrono::seconds next_notice_{1};
  troupe::view view_;
  std::map<task_name, member> joined_;

  std::vector<worker_state> workers_;
  std::vector<shard_actor> shards_;
  std::vector<reader_actor> readers_;
  /// Shards, or ranks of the ring: whoever decides on gradients.
  std::vector<reporter_actor> reporters_;
  std::map<task_name, node_actor> nodes_;
  std::size_t views_opened_ = 0;
  /// Actors whose end concerns the run: workers and shards, and the nodes of all tasks.
  std::map<caf::actor_addr, task_name> monitored_;
  std::map<caf::actor_addr, task_name> monitored_nodes_;
  std::size_t unreached_ = 0;
  task_table tasks_;
  stall_judge stalls_;

  std::optional<lease_book> leases_;
  std::uint32_t epoch_ = 0;
  time_point epoch_began_;
  std::uint64_t epoch_samples_ = 0;
  std::uint64_t epoch_leases_ = 0;
  double epoch_loss_ = 0;
  /// Samples whose loss is in epoch_loss_: those of vanished workers are trained, but their loss is
  /// unknown.
  std::uint64_t epoch_loss_samples_ = 0;
  /// Per shard, the samples whose gradient it missed because a worker vanished while sending.
  std::vector<std::uint64_t> lost_samples_;
  /// Workers that vanished and whose leases are not settled yet.
  std::size_t settling_ = 0;

  evaluate snapshot_;
  std::size_t snapshot_missing_ = 0;
  std::uint64_t evaluations_begun_ = 0;
  /// Snapshots waiting for their evaluation, by number.
  std::map<std::uint64_t, epoch_report> evaluating_;
  /// When the evaluator began with the snapshot it has, if it has one; what took it longest.
  time_point evaluation_began_;
  std::chrono::nanoseconds longest_evaluation_{0};
  evaluated last_;
  evaluations_actor evaluator_;
  recorder_actor recorder_;
  /// While it solves; else null.
  caf::actor solver_;

  /// A checkpoint that is not written yet, and who waits for that.
  struct open_checkpoint {
    time_point since;
    std::vector<caf::typed_response_promise<proto::Ack>> answers;
  };

  /// Null where the job writes none.
  checkpoint_writer_actor checkpoint_writer_;
  std::optional<checkpoint_assembly> checkpoint_parts_;
  std::map<std::uint64_t, open_checkpoint> checkpoints_;
  /// Parts of versions that are to be evaluated in the midst of an epoch; and those that are not
  /// evaluated yet.
  std::optional<checkpoint_assembly> step_parts_;
  std::map<std::uint64_t, open_checkpoint> step_evaluations_;
  /// Not written, in a row and in all.
  std::size_t checkpoints_failing_ = 0;
  std::size_t checkpoints_failed_ = 0;
  /// The newest one that is on disk, of this run or the one that it goes on from.
  std::string last_checkpoint_;
  /// Of the first epoch, trained before this run.
  std::uint64_t epoch_trained_before_ = 0;
  bool resumed_ = false;
  /// What this run has to train.
  std::uint64_t expected_samples_ = 0;

  std::vector<proto::Report> reports_;
  std::size_t reports_missing_ = 0;
  run_summary summary_;
  std::size_t nodes_running_ = 0;
};

} // namespace troupe
