#pragma once

#include "actors/cluster/cluster_node.hpp"
#include "actors/link/channel_host.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

// Nodes that listen at ports of this host. In tests, other programs connect to them.

namespace troupe::test {

inline constexpr std::chrono::seconds patience_limit{120};

/// An actor system that listens at a port.
struct process {
  caf::actor_system_config cfg;
  std::unique_ptr<caf::actor_system> sys;

  explicit process(const std::function<void(caf::actor_system_config&)>& change = {});
};

/// A node in its own actor system, as if in its own process.
struct node_process : process {
  std::promise<run_summary> ended;
  std::shared_ptr<std::vector<std::string>> notices = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
  run_observer observer;
  std::shared_ptr<channel_host> channels;
  caf::actor node;
  std::uint16_t port = 0;

  node_process(node_options how, bool with_channels);
  ~node_process();

  void begin() { caf::anon_send(node, begin_node{"127.0.0.1:" + std::to_string(port)}); }
  std::string all_notices();
};

/// A cluster of a coordinator, a shard and two workers with synchronous steps.
struct cluster {
  std::vector<std::unique_ptr<node_process>> nodes;
  std::future<run_summary> end;

  explicit cluster(bool with_channels);
  void begin();
  run_summary result();
};

/// The hash of the weights of a run that no other program disturbs.
std::string undisturbed();

} // namespace troupe::test
