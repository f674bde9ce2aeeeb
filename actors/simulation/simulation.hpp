#pragma once

#include "actors/cluster/cluster_node.hpp"
#include "actors/simulation/simulated_channels.hpp"

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
  /// The seed for the order in which runnable actors take turns, and for the jitter of links.
  std::uint64_t seed = 1;
  link_model links;
  proto::Job job;
  /// Additional protocols (protocol CUSTOM).
  std::vector<protocol> protocols;
  job_data data;
  /// The data of all nodes whose data differs from the coordinator's data.
  std::map<sim_node, job_data> other_data;
  std::size_t workers = 1;
  std::size_t ps = 1;
  /// If true, worker 0 runs on the coordinator's node.
  bool coordinator_trains = false;
  /// If true, there is an evaluator task on its own node.
  bool evaluator = false;
  /// If true, all tasks run on the coordinator's node, without encoding or links. A run then takes
  /// little more time than its gradients. There must be no evaluator task.
  bool one_node = false;
  /// If true, links use channels (simulated_channels): connections like those between hosts, which
  /// can break and be restored. If false, link actors send all messages to each other directly.
  bool channels = false;
  /// Returns the time at which a gradient is finished if a worker starts it at `now`. Both are
  /// virtual times since the start. Called once per gradient. Workers are numbered in the order in
  /// which they start. If null, gradients are finished at once.
  std::function<std::chrono::nanoseconds(std::size_t worker, std::chrono::nanoseconds now)>
    gradient_done;
  /// Virtual time after which the run is aborted.
  std::chrono::seconds limit{600};
  /// The GPUs of each node: see node_options::gpus.
  std::shared_ptr<const gpu_set> gpus;
  /// The storage to which the coordinator writes. If null, the simulation makes one in memory.
  std::shared_ptr<memory_storage> files;
  /// The checkpoint to continue from. Null to start from the beginning.
  std::shared_ptr<const checkpoint> resume;
};

/// The result of a simulated run.
struct simulation_result {
  /// The coordinator's summary. If the run exceeded the limit, `failure` says so.
  run_summary summary;
  /// The summary of each node, in the order coordinator, ps, workers, evaluator; empty for a node
  /// that did not end.
  std::vector<std::optional<run_summary>> nodes;
  /// The virtual time at which each node ended.
  std::vector<std::chrono::nanoseconds> ended_at;
  /// A hash over all messages between nodes, with their times.
  std::uint64_t trace_hash = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds virtual_time{0};
};

/// A notice to the operator, and its time.
struct simulated_notice {
  /// Virtual time since the start.
  std::chrono::nanoseconds when{0};
  std::string text;
};

/// Everything that an operator would see of a run.
struct simulation_view {
  std::vector<simulated_notice> notices;
  std::vector<run_progress> progress;
};

/// A whole cluster in one process and one thread. It uses the production actors, usually one node
/// per task, the test scheduler and its clock, and simulated links. It is deterministic: the same
/// seed gives the same run, message by message.
class simulation {
public:
  /// Throws input_error if the job does not fit the data.
  explicit simulation(simulation_options options);
  ~simulation();
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  simulated_network& network() noexcept { return *network_; }
  /// Call it only if simulation_options::channels is true.
  simulated_channels& channels() noexcept { return *channels_; }
  caf::actor_system& system() noexcept { return *system_; }
  /// Files that the coordinator writes if the job names an output directory.
  const memory_storage& files() const noexcept { return *files_; }

  /// The coordinator's reports so far.
  const simulation_view& seen() const noexcept { return *seen_; }

  /// Node numbers, to inject faults.
  sim_node coordinator_node() const noexcept { return 0; }
  sim_node ps_node(std::size_t i) const noexcept { return options_.one_node ? 0 : 1 + i; }
  sim_node worker_node(std::size_t i) const noexcept {
    if (options_.one_node)
      return 0;
    return options_.coordinator_trains ? (i == 0 ? 0 : options_.ps + i) : 1 + options_.ps + i;
  }
  sim_node evaluator_node() const noexcept { return worker_node(options_.workers); }

  /// Asks a node to stop, as SIGTERM does.
  void stop(sim_node node, const std::string& reason);

  /// Makes a node vanish at once, like SIGKILL.
  void crash(sim_node node);

  /// Starts the tasks of a crashed node again, as a new process at the same address. A coordinator
  /// continues from the newest checkpoint. Returns the number of the new node.
  sim_node restart(sim_node node);

  /// Stops scheduling the actors of a node until thaw(). If `actor` is a name, such as
  /// "troupe.trainer", only the actors with this name stop. This simulates a paused process or a
  /// hanging thread. Timers continue; messages to and from these actors wait.
  void freeze(sim_node node, const std::string& actor = "");
  void thaw(sim_node node, const std::string& actor = "");

  /// Calls `what` once: when no actor can run, at the first event that is not before this virtual time
  /// after the start.
  void at(std::chrono::nanoseconds when, std::function<void()> what);

  /// Virtual time since the start.
  std::chrono::nanoseconds elapsed();

  /// Makes one step: one runnable actor handles a message, or time advances to the next event.
  /// Returns false when nothing is left to do.
  bool step();

  /// Runs until all nodes have ended.
  simulation_result run();

private:
  void start_nodes();
  void end();
  void start_node(sim_node number, std::vector<task_name> tasks);
  void start_node(sim_node number, std::vector<task_name> tasks, std::string address, bool again);
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
  /// Null if simulation_options::channels is false.
  std::unique_ptr<simulated_channels> channels_;
  std::shared_ptr<memory_storage> files_;
  random_stream order_;
  std::chrono::steady_clock::time_point start_;
  std::vector<caf::actor> nodes_;
  /// The tasks and the address of each node.
  std::vector<std::vector<task_name>> tasks_;
  std::vector<std::string> addresses_;
  std::vector<std::optional<run_summary>> ended_;
  std::vector<std::chrono::nanoseconds> ended_at_;
  std::shared_ptr<simulation_view> seen_ = std::make_shared<simulation_view>();
  caf::actor observer_;
  /// The node of each actor, by ranges of actor IDs. A range goes from the key of an element up to
  /// the next key. The element is the node that spawned these actors, or empty if no node did.
  std::map<caf::actor_id, std::optional<sim_node>> homes_;
  /// Frozen actors, by name; an empty name means all actors of the node.
  std::set<std::pair<sim_node, std::string>> frozen_;
  std::multimap<std::chrono::nanoseconds, std::function<void()>> events_;
  /// The number of each trainer, in the order of their starts; and the time at which its current
  /// gradient is due.
  std::map<caf::actor_id, std::size_t> trainers_;
  std::map<caf::actor_id, std::chrono::steady_clock::time_point> computing_until_;
};

/// Runs a simulation from beginning to end.
simulation_result simulate(const simulation_options& options);

} // namespace troupe
