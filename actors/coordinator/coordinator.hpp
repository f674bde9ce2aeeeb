#pragma once

#include "actors/checkpoint/checkpoint.hpp"
#include "actors/coordinator/coordinator_parts.hpp"
#include "actors/coordinator/epoch_weights.hpp"
#include "actors/coordinator/member_table.hpp"
#include "actors/model/data_builder.hpp"
#include "actors/spawner.hpp"
#include "actors/tick.hpp"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace troupe {

/// Asks for the actor with this name. The answer comes as soon as the actor can be reached.
struct resolve {
  endpoint name;
};

struct resolved {
  caf::strong_actor_ptr actor;
};

/// The order of the operator to stop the run.
struct stop_run {
  std::string reason;
};

/// A message of the coordinator to itself: it is time to answer a request to join that it has kept
/// waiting (coordinator::second_start).
struct answer_second_start {
  std::uint64_t number = 0;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::resolve)
TROUPE_LOCAL_MESSAGE(troupe::resolved)
TROUPE_LOCAL_MESSAGE(troupe::stop_run)
TROUPE_LOCAL_MESSAGE(troupe::answer_second_start)

namespace troupe {

/// A view (a numbered list of members) is over, and the elastic run continues in another view. The
/// coordinator sends this to its own node. All other nodes already have the order to join again.
/// The coordinator's own node joins again when it receives this.
struct next_view {
  /// The number of the view that is over; 0 at the beginning of a run.
  std::uint64_t last = 0;
  /// Number of views of this run so far.
  std::uint64_t views = 0;
  /// The reason why this view is over.
  std::string reason;
  /// Number of views, including this view, that have ended by the loss of a task since the newest
  /// checkpoint.
  std::uint32_t losses = 0;
  /// The newest checkpoint of the run; empty if there is none.
  std::string checkpoint;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::next_view)

namespace troupe {

/// The coordinator's own node: finds actors for it, and receives the summary at the end.
using coordinator_host =
  caf::typed_actor<rpc<resolved, resolve>, rpc<void, run_summary>, rpc<void, next_view>>;

struct coordinator_options {
  std::shared_ptr<const job_context> context;
  job_data data;
  std::vector<expected_task> tasks;
  /// Output directory. Empty if the run writes no output.
  std::string output;
  std::shared_ptr<storage> files;
  /// The origin of the run (its host and start time), which is written to the output.
  run_origin origin;
  /// The checkpoint to continue from. Null to start from the beginning.
  std::shared_ptr<const checkpoint> resume;
  /// Initial weights of a run without a checkpoint. If empty, the initializers of the layers are
  /// used.
  payload initial;
  /// Loss of a model that ignores the features: see constant_guess_loss(). Empty if unknown.
  std::optional<double> constant_guess;
  /// Notices that the operator gets before the run begins.
  std::vector<std::string> notices;
  /// The view before this coordinator's view. All fields are 0 or empty at the beginning of a run.
  next_view after;
  /// The device for evaluations on this node.
  testing_device device;
  /// May be null.
  run_observer observer;
  /// Receives the weights after each epoch. May be null.
  weights_listener weights;
  troupe::spawner spawner;
  coordinator_host host;
};

using coordinator_shell =
  coordinator_actor::extend<rpc<void, run_over>, rpc<void, end_run>, rpc<void, stop_run>,
                            rpc<void, answer_second_start>, rpc<void, tick>>;

/// Runs a job in one view: a numbered list of members. This actor handles membership, and receives
/// all messages that other nodes send to the coordinator. Tasks join. Then this actor opens the
/// view, connects to all tasks, watches them, and stops all nodes at the end. In an elastic job,
/// the view also ends when the run loses a task that the protocol needs, or when a task joins. Then
/// all nodes begin again, and the next view's coordinator continues from the newest checkpoint.
///
/// This actor forwards all other messages to three actors that share no state: `training_run`
/// (leases and accounts), `captures` (snapshots, evaluations, checkpoints) and `progress` (reports
/// to the operator, output). None of them handles gradients.
class coordinator : public coordinator_shell::base {
public:
  using super = coordinator_shell::base;

  coordinator(caf::actor_config& cfg, coordinator_options options);

  const char* name() const override { return "troupe.coordinator"; }

protected:
  behavior_type make_behavior() override;
  /// Ends the other three actors. Drops handles to actors that hold a handle to this actor, because
  /// CAF never frees actors that hold handles to each other.
  void on_exit() override;

private:
  enum class phase { gathering, opening, running, done };
  using time_point = std::chrono::steady_clock::time_point;

  void start_parts();

  // -- gathering --
  /// A request to join that is not answered yet, because the task was started a second time:
  /// - Either the task is already a member. If this actor soon learns that the first process has
  ///   ended, the second process may join. Otherwise, the answer is `refusal`.
  /// - Or the task was lost in this view (`refusal` is empty), and the loss will end the view.
  struct second_start {
    task_name task;
    std::string address;
    std::string refusal = {};
    caf::typed_response_promise<proto::Joined> answer = {};
  };

  caf::result<proto::Joined> on_join(const proto::Join& x);
  caf::result<proto::Joined> hold(second_start x, std::chrono::milliseconds patience);
  caf::error refuse(const task_name& task, const std::string& address, const std::string& reason);
  void on_answer_second_start(const answer_second_start& x);
  void leave_members(const task_name& task);
  void watch_node(const task_name& task);
  void report_waiting();
  bool enough_joined() const;
  void on_down(const caf::down_msg& x);
  void on_node_down(const task_name& task, const std::string& reason);
  template <class Handle>
  void reach(const endpoint& name, std::function<void(Handle)> then);

  // -- opening the view --
  void open_view();
  void open_at(const task_name& task);
  void open_evaluator(const task_name& task);
  void reach_tasks();
  template <class Handle>
  void reach_for_training(const endpoint& name, Handle& where, bool watch = false);
  void begin_training();
  /// Starts a job with the exact solver. No task trains. The coordinator only connects to the nodes
  /// so that they receive the message that the run is over.
  void solve();

  // -- the next view --
  bool elastic() const { return job().has_elastic(); }
  bool trains(const task_name& task) const;
  void end_view(const std::string& reason);
  void on_failure(const proto::Failure& x);
  std::uint32_t losses_after(const run_summary& x) const;
  bool continues(const run_summary& x) const;

  // -- the end --
  void fail(const std::string& reason);
  /// Ends the run because a task failed or was lost before training began.
  void fail_without_task(const std::string& reason);
  void on_over(const run_over& x);
  void node_ended();

  void notice(const std::string& text, notice_level level = notice_level::info);
  const proto::Job& job() const { return options_.context->job; }
  std::chrono::milliseconds join_timeout() const;
  /// True if the coordinator itself computes the weights (exact solver), and no task trains.
  bool solves() const { return job().solver() == proto::EXACT; }

  coordinator_options options_;
  member_table members_;
  run_actor run_;
  captures_actor captures_;
  progress_actor progress_;

  phase phase_ = phase::gathering;
  time_point began_;
  std::chrono::seconds next_notice_{1};
  troupe::view view_;
  std::map<task_name, node_actor> nodes_;
  std::size_t views_opened_ = 0;
  /// The marks (last gradient of each worker) in the checkpoint from which the run continues.
  std::vector<checkpoint_mark> resumed_marks_;
  std::shared_ptr<cluster_handles> handles_;
  std::size_t unreached_ = 0;
  /// The monitored actors, with their tasks: workers and shards in the first map, the nodes
  /// (processes) of all tasks that joined in the second.
  std::map<caf::actor_addr, task_name> monitored_;
  std::map<caf::actor_addr, task_name> monitored_nodes_;

  /// The reason why the view ends although no task was lost. Empty if there is no such reason.
  std::string view_ends_;
  /// Set if a task joins while the view is being opened: the reason to put into view_ends_. As soon
  /// as the view is open, it ends for this reason.
  std::string joins_early_;
  /// The notices so far about tasks that may not join. The same notice is not given twice.
  std::set<std::string> refusals_;
  /// True if the operator stops the whole run.
  bool stopped_ = false;
  /// Set at the end of a view if the run continues in another view.
  std::optional<next_view> next_;
  /// Unanswered requests of nodes that want to join while the view ends. They are answered with an
  /// error at the end of the view. Then these nodes ask again.
  std::vector<caf::typed_response_promise<proto::Joined>> too_early_;
  std::map<std::uint64_t, second_start> second_starts_;
  std::uint64_t second_starts_held_ = 0;
  /// The tasks whose loss ends this view.
  std::set<task_name> lost_;

  run_summary summary_;
  std::size_t nodes_running_ = 0;
};

} // namespace troupe
