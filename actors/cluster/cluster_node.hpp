#pragma once

#include "actors/cluster/coordinator_setup.hpp"
#include "actors/cluster/transport.hpp"
#include "actors/coordinator/evaluation_service.hpp"
#include "actors/link/link.hpp"
#include "actors/protocols/protocol.hpp"
#include "actors/protocols/site.hpp"
#include "actors/spawner.hpp"
#include "actors/worker/task_device.hpp"
#include "actors/worker/worker.hpp"
#include "messages/configure.hpp"

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

struct task_memory;

struct node_options {
  /// Tasks of this node: either one task, or the coordinator and any number of other tasks.
  std::vector<task_name> tasks;
  /// Set if this node runs the coordinator.
  std::optional<coordinator_setup> coordinator;
  /// If this node does not run the coordinator: the coordinator's address.
  std::string coordinator_address;
  /// The addresses of the cluster's tasks that this node knows. Used to probe them (probe.hpp).
  std::map<task_name, std::string> cluster;
  /// A number that differs for each start of a node.
  std::uint64_t incarnation = 1;
  /// The version that this node reports. A coordinator accepts only nodes with its own version.
  std::string version = troupe::version();
  /// This node's own copy of the job, to compare with the coordinator's.
  std::optional<proto::Job> job;
  /// How to connect to other nodes. Null if this node hosts all tasks.
  std::shared_ptr<transport> net;
  troupe::spawner spawner;
  data_source source;
  /// The GPUs of this host. Null if the program has no code for GPUs.
  std::shared_ptr<const gpu_set> gpus;
  /// The training protocols of the embedding program (protocol CUSTOM).
  std::vector<protocol> protocols;
  /// Receives reports of the run; may be null.
  run_observer observer;
  link_options links;
  /// Checks the memory of this host. It must be enough for this node's tasks (`own` bytes), and for
  /// all tasks of the cluster on this host. If it is not enough, returns a text such as "this would
  /// take 8 TiB of memory, and this host has 64 GiB". Otherwise returns an empty text. May be null.
  std::function<std::string(std::size_t own, const std::vector<task_memory>& on_host)>
    memory_problem;
  std::chrono::milliseconds join_timeout{60'000};
  /// Called once, from the node's actor, when the node ends.
  std::function<void(const run_summary&)> on_end;
};

/// Starts the node. Other nodes reach it at `address`; empty if this node runs all tasks.
struct begin_node {
  std::string address;
};

/// Ends the node and all its actors at once, without a message to other nodes. This is the only way
/// to end a node from outside: a node ignores the framework's exit messages, because any program
/// can send them.
struct crash_node {};

/// A node sends this to itself to try again to connect to a task.
struct redial {
  task_name task;
};

/// A node that has left a view sends this to itself to join again (view: the numbered list of a
/// run's members). It joins only when all actors of the last view have ended.
struct begin_again {};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::begin_node)
TROUPE_LOCAL_MESSAGE(troupe::crash_node)
TROUPE_LOCAL_MESSAGE(troupe::redial)
TROUPE_LOCAL_MESSAGE(troupe::begin_again)

namespace troupe {

using node_shell = node_actor::extend<
  rpc<resolved, resolve>, rpc<void, run_summary>, rpc<void, worker_left>, rpc<void, worker_ready>,
  rpc<void, link_up>, rpc<void, link_down>, rpc<void, link_notice>, rpc<void, dialled>,
  rpc<void, begin_node>, rpc<void, crash_node>, rpc<void, redial>, rpc<void, stop_run>,
  rpc<void, evaluator_ready>, rpc<void, next_view>, rpc<void, begin_again>, rpc<void, tick>>;

/// A process of the cluster (or a simulated process). It connects to other nodes and joins the
/// coordinator. The coordinator then opens a *view*: a numbered list of the members. When the view
/// opens, the node starts the actors of its tasks. The node ends after its actors. In an elastic
/// run, a node leaves the view when the coordinator orders it, or when it loses the coordinator. It
/// then ends its actors and links, takes a new incarnation (the number of a start of a node), and
/// joins again.
///
/// Nodes may start in any order. A node dials until it succeeds or the join time-out passes, and
/// reports which nodes it waits for.
///
/// Any program that connects to the node's port can send messages to this actor, over the
/// framework's own protocol. This actor accepts Hello and Probe from every program, within limits.
/// It accepts all other messages only from actors of its own process. These include the proxies
/// (`port`) through which its links deliver messages of other nodes. It ignores exit messages. An
/// actor of this process can end it with crash_node.
class cluster_node : public guarded<node_shell::base>, private protocol_host {
public:
  using super = guarded<node_shell::base>;

  cluster_node(caf::actor_config& cfg, node_options options);

  const char* name() const override { return "troupe.node"; }

protected:
  behavior_type make_behavior() override;
  /// Answers all waiting requests. Also called after an internal error.
  void on_exit() override;

private:
  using time_point = std::chrono::steady_clock::time_point;

  struct dialling {
    std::string address;
    time_point since;
    int attempts = 0;
    std::string problem = "no answer yet";
    std::chrono::seconds next_notice{1};
    /// Null until the other node has answered.
    caf::actor link;
  };

  /// The state of a task of this node in an open view. `answers` are the requests for OpenView that
  /// wait until the task is ready.
  struct task_state {
    bool ready = false;
    std::vector<caf::typed_response_promise<proto::ViewReady>> answers;
  };

  struct peer_link {
    caf::actor handle;
    std::uint64_t incarnation = 0;
    std::shared_ptr<link_session> session;
    std::map<endpoint, caf::strong_actor_ptr> ports = {};
    /// When another process connected as the same task.
    std::optional<std::chrono::steady_clock::time_point> second_start = {};
  };

  /// A node that has sent Hello but has not become a peer yet.
  struct newcomer {
    caf::strong_actor_ptr peer;
    caf::actor link;
    std::chrono::steady_clock::time_point since;
  };

  // -- strangers --
  std::optional<caf::error> refuse_stranger(const char* message);
  void on_notice(const link_notice& x);
  void admit(newcomer x);
  void forget_newcomer(const caf::actor& link);

  // -- reaching actors --
  void reach(const endpoint& name, on_reached then) override;
  template <class Handle>
  void reach_as(const endpoint& name, std::function<void(Handle)> then);
  caf::strong_actor_ptr lookup(const endpoint& name);
  void flush_waiting();
  void host(const endpoint& name, caf::strong_actor_ptr actor,
            const std::optional<link_peer>& only = {}) override;
  void start(const caf::strong_actor_ptr& actor) override;
  caf::actor_system& home() override { return system(); }
  const troupe::spawner& threads() const override { return options_.spawner; }
  void on_down(const caf::down_msg& x);
  void drop_link(const task_name& peer, const caf::error& reason);
  bool hosts(const task_name& task) const;
  task_name front_of(const task_name& task) const;
  caf::result<proto::Probed> on_probe();
  void begin_probing();
  void dial_if_ours(const task_name& task);
  void try_dial(const task_name& task);
  void on_dialled(const dialled& x);
  void on_hello(const proto::Hello& x);
  void accept(const caf::strong_actor_ptr& peer, const proto::Hello& x);
  void on_link_up(const link_up& x);
  void on_link_down(const link_down& x, const caf::actor& which);
  void on_tick();
  void drop_replaced_processes();
  void tick_later();

  // -- life cycle --
  void on_begin(const begin_node& x);
  bool start_coordinator();
  void leave_view(const std::string& reason);
  void on_begin_again();
  void end_links();
  void end_between_views(const std::string& failure);
  bool returns() const;
  void join_as(const task_name& task);
  void limit_links(const job_context& context);
  void on_joined(const proto::Joined& x);
  caf::result<proto::ViewReady> on_open_view(const proto::OpenView& x);
  std::string lacks_memory() const;
  std::string lacks_device(const job_context& context, const task_name& task);
  void tell_fallback(const task_name& task, const coordinator_actor& coordinator);
  void warn(const task_name& task, const std::string& text, const coordinator_actor& coordinator);
  std::shared_ptr<device_ring> ring_of_workers(const worker_site& site);
  testing_device testing_device_of(std::shared_ptr<const job_context> context,
                                   const task_name& task) const;
  void start_shard(const task_name& task);
  void start_worker(const task_name& task, const std::optional<loss_scale_state>& scale);
  void start_evaluator(const task_name& task);
  void on_evaluator_ready(const evaluator_ready& x);
  task_site site_of(const task_name& task, const coordinator_actor& coordinator);
  void start_pulse(const task_name& task, std::shared_ptr<activity_board> board);
  void give_parts(const worker_site& site, synchronizer_actor synchronizer,
                  ring_node_actor sums) override;
  void task_ready(const task_name& task, const std::string& problem) override;
  void task_ready(const task_name& task, const std::string& problem, errc code);
  void on_stop(const stop_run& x);
  void on_worker_left();
  void end(const run_summary& summary);
  void end_actors(const std::string& reason);
  void end_with(const std::string& failure, const std::optional<task_name>& lost = {});
  std::optional<ring_failure> ring_without(const task_name& lost);
  task_name worker_beside(const peer_link& x) const;
  void notice(const std::string& text, notice_level level = notice_level::info);
  template <class Actor, class... Args>
  auto spawn_task(bool heavy, Args&&... args);
  patience requests() const;
  bool only(job_kind job) const;

  node_options options_;
  std::shared_ptr<directory> local_ = std::make_shared<directory>();
  /// All actors that this node started, in order. The node ends them in reverse order. It is
  /// notified if one of them ends by itself.
  std::vector<caf::strong_actor_ptr> started_;
  std::vector<worker_shell> workers_;
  /// For each task that this node started: the activity board, which shows what the task does now.
  std::map<task_name, std::shared_ptr<activity_board>> boards_;
  std::map<task_name, task_device> devices_;
  /// The ring in which the GPUs of this view's workers add up gradients. The node keeps it until
  /// each worker has received it; `ring_seats_` counts the workers that have not.
  std::shared_ptr<device_ring> ring_;
  std::uint64_t ring_view_ = 0;
  std::size_t ring_seats_ = 0;
  caf::actor coordinator_;

  std::map<task_name, std::string> addresses_;
  std::map<task_name, dialling> dialling_;
  std::map<task_name, peer_link> links_;
  std::vector<std::pair<endpoint, on_reached>> waiting_;
  /// Peers that connected before this node began. They are accepted when it begins.
  std::deque<std::pair<caf::strong_actor_ptr, proto::Hello>> early_;
  std::deque<newcomer> newcomers_;
  /// Requests for a probe. One prober answers all of them.
  std::vector<caf::typed_response_promise<proto::Probed>> probes_;
  std::uint64_t strangers_refused_ = 0;
  /// The texts of the notices so far about peers, and about programs that are not part of the run.
  /// The same notice is not given twice.
  std::set<std::string> told_;
  bool begun_ = false;
  /// Largest payload in bytes that a peer may ever send, from `options_.links` as the caller set
  /// it. The limit in `options_` is lower while the job is not known, and if the model is small
  /// (limit_links).
  std::size_t most_payload_;
  std::uint64_t jitter_;

  std::string address_;
  std::shared_ptr<const job_context> context_;
  view view_;
  std::map<task_name, task_state> opening_;
  std::size_t workers_left_ = 0;
  bool ended_ = false;

  /// True between two views, while the actors of the last view end. Then this node joins again.
  bool returning_ = false;
  /// When this node left a view. Empty when the node has joined again.
  std::optional<time_point> left_at_;
  /// When the operator is next told that this node still waits to join again.
  time_point next_waiting_notice_;
  /// When this node last left a view, or last failed to join again.
  time_point leaving_since_;
  /// When the coordinator began, if it is on this node.
  time_point begun_at_;
  /// An order to stop that arrived between two views. The node carries it out in the next view.
  std::optional<stop_run> stop_later_;
  /// The operator's order to stop this node, while the node carries it out.
  std::optional<stop_run> stopping_;
  bool ticking_ = false;
  /// Actors of the last view that have not ended yet.
  std::set<caf::actor_addr> awaited_;
  next_view after_;
};

} // namespace troupe
