#pragma once

#include "actors/cluster/cluster_node.hpp"
#include "actors/simulation/simulated_network.hpp"

#include <caf/scheduler/test_coordinator.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct simulation_options {
  /// Decides the order in which runnable actors take turns, and the jitter of links.
  std::uint64_t seed = 1;
  link_model links;
  proto::Job job;
  job_data data;
  std::size_t workers = 1;
  std::size_t ps = 1;
  /// Virtual time after which the run is given up.
  std::chrono::seconds limit{600};
};

/// How a simulated run ended.
struct simulation_result {
  /// The coordinator's account; `failure` is set where it did not end within the limit.
  run_summary summary;
  /// Nodes, in the order coordinator, ps, workers, as each ended; nothing for those that did not.
  std::vector<std::optional<run_summary>> nodes;
  /// Over all messages between nodes, with their times.
  std::uint64_t trace_hash = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds virtual_time{0};
};

/// A whole cluster in one process and one thread, deterministically: the production actors, a node
/// per task, under the test scheduler and its clock, with simulated links between them. The same
/// seed gives the same run, message by message.
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

  /// Node numbers, for faults.
  sim_node coordinator_node() const noexcept { return 0; }
  sim_node ps_node(std::size_t i) const noexcept { return 1 + i; }
  sim_node worker_node(std::size_t i) const noexcept { return 1 + options_.ps + i; }

  /// The operator asks a node to stop, as with SIGTERM.
  void stop(sim_node node, const std::string& reason);

  /// A node is gone from one moment to the next, as with SIGKILL.
  void crash(sim_node node);

  /// Calls `what` once, at a virtual time after the start.
  void at(std::chrono::nanoseconds when, std::function<void()> what);

  /// Makes one move: lets one runnable actor handle a message, or time go on to the next event.
  /// False when nothing can happen any more.
  bool step();

  /// Runs until all nodes have ended.
  simulation_result run();

private:
  void start_node(sim_node number, std::vector<task_name> tasks);
  std::chrono::nanoseconds elapsed();
  bool all_ended() const;

  simulation_options options_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator* scheduler_;
  std::unique_ptr<simulated_network> network_;
  std::shared_ptr<memory_storage> files_ = std::make_shared<memory_storage>();
  random_stream order_;
  std::chrono::steady_clock::time_point start_;
  std::vector<caf::actor> nodes_;
  std::vector<std::optional<run_summary>> ended_;
  std::multimap<std::chrono::nanoseconds, std::function<void()>> events_;
};

/// Runs a simulation from beginning to end.
simulation_result simulate(const simulation_options& options);

} // namespace troupe
