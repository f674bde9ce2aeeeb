#pragma once

#include "actors/cluster/cluster_node.hpp"
#include "actors/simulation/simulated_network.hpp"

#include <caf/scheduler/test_coordinator.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

struct simulation_options {
  /// Decides the order in which runnable actors take turns, and the jitter of links.
  std::uint64_t seed = 1;
  link_model links;
  proto::Job job;
  /// Protocols that are added (protocol CUSTOM).
  std::vector<protocol> protocols;
  job_data data;
  /// Of nodes that have other data than the coordinator.
  std::map<sim_node, job_data> other_data;
  std::size_t workers = 1;
  std::size_t ps = 1;
  /// Worker 0 lives on the coordinator's node.
  bool coordinator_trains = false;
  /// There is an evaluator task, on a node of its own.
  bool evaluator = false;
  /// All tasks run on the coordinator's node, without encoding or links, so the run takes little
  /// longer than its gradients. Not with an evaluator task.
  bool one_node = false;
  /// When a gradient is done that a worker begins to compute `now`, both in virtual time since the
  /// start. Called once per gradient. Workers are numbered in the order in which they start. Null:
  /// at once.
  std::function<std::chrono::nanoseconds(std::size_t worker, std::chrono::nanoseconds now)>
    gradient_done;
  /// Virtual time after which the run is given up.
  std::chrono::seconds limit{600};
  /// Where the coordinator writes; null: memory of the simulation's own.
  std::shared_ptr<memory_storage> files;
  /// The checkpoint from which the run continues. Null: it begins at the beginning.
  std::shared_ptr<const checkpoint> resume;
};

/// How a simulated run ended.
struct simulation_result {
  /// The coordinator's summary. `failure` is set if it did not end within the limit.
  run_summary summary;
  /// How each node ended, in the order coordinator, ps, workers, evaluator; nothing for a node that
  /// did not end.
  std::vector<std::optional<run_summary>> nodes;
  /// Over all messages between nodes, with their times.
  std::uint64_t trace_hash = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds virtual_time{0};
};

/// The notices to the operator, with their times.
struct simulated_notice {
  /// Virtual time since the start.
  std::chrono::nanoseconds when{0};
  std::string text;
};

/// What an operator would see of a run.
struct simulation_view {
  std::vector<simulated_notice> notices;
  std::vector<run_progress> progress;
};

/// A whole cluster in one process and one thread, deterministically: the production actors, a node
/// per task (or almost), under the test scheduler and its clock, with simulated links between them.
/// The same seed gives the same run, message by message.
class simulation {
public:
  explicit simulation(simulation_options options);
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  simulated_network& network() noexcept { return *network_; }
  caf::actor_system& system() noexcept { return *system_; }
  /// Files that the coordinator writes when the job names an output directory.
  const memory_storage& files() const noexcept { return *files_; }

  /// The coordinator's reports so far.
  const simulation_view& seen() const noexcept { return *seen_; }

  /// Node numbers, for faults.
  sim_node coordinator_node() const noexcept { return 0; }
  sim_node ps_node(std::size_t i) const noexcept { return options_.one_node ? 0 : 1 + i; }
  sim_node worker_node(std::size_t i) const noexcept {
    if (options_.one_node)
      return 0;
    return options_.coordinator_trains ? (i == 0 ? 0 : options_.ps + i) : 1 + options_.ps + i;
  }
  sim_node evaluator_node() const noexcept { return worker_node(options_.workers); }

  /// The operator asks a node to stop, as with SIGTERM.
  void stop(sim_node node, const std::string& reason);

  /// A node vanishes at once, as with SIGKILL.
  void crash(sim_node node);

  /// The actors of a node (or only those of one name, such as "troupe.trainer") are not scheduled
  /// until they are thawed, as if the process were paused or a thread hung. Timers continue;
  /// messages to and from them wait.
  void freeze(sim_node node, const std::string& actor = "");
  void thaw(sim_node node, const std::string& actor = "");

  /// Calls `what` once, at a virtual time after the start.
  void at(std::chrono::nanoseconds when, std::function<void()> what);

  /// Virtual time since the start.
  std::chrono::nanoseconds elapsed();

  /// Makes one step: one runnable actor handles a message, or time advances to the next event.
  /// False when nothing can happen any more.
  bool step();

  /// Runs until all nodes have ended.
  simulation_result run();

private:
  void start_node(sim_node number, std::vector<task_name> tasks);
  coordinator_setup make_coordinator();
  void run_next_job();
  bool frozen(const caf::resumable& job) const;
  bool computing(const caf::resumable& job);
  bool finish_computing();
  std::optional<sim_node> home_of(caf::actor_id actor) const;
  bool all_ended() const;

  simulation_options options_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator* scheduler_;
  std::unique_ptr<simulated_network> network_;
  std::shared_ptr<memory_storage> files_;
  random_stream order_;
  std::chrono::steady_clock::time_point start_;
  std::vector<caf::actor> nodes_;
  std::vector<std::optional<run_summary>> ended_;
  std::shared_ptr<simulation_view> seen_ = std::make_shared<simulation_view>();
  caf::actor observer_;
  /// The node that spawned the actors from this ID on. Nothing: no node did.
  std::map<caf::actor_id, std::optional<sim_node>> homes_;
  /// Frozen actors, by name; an empty name means all actors of the node.
  std::set<std::pair<sim_node, std::string>> frozen_;
  std::multimap<std::chrono::nanoseconds, std::function<void()>> events_;
  /// Trainers in the order in which they were started, and when their gradients are done.
  std::map<caf::actor_id, std::size_t> trainers_;
  std::map<caf::actor_id, std::chrono::steady_clock::time_point> computing_until_;
};

/// Runs a simulation from beginning to end.
simulation_result simulate(const simulation_options& options);

} // namespace troupe
