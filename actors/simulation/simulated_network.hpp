#pragma once

#include "actors/cluster/transport.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

namespace troupe {

/// A node of a simulated cluster: 0, 1, ...
using sim_node = std::size_t;

/// The delays of every link. All links are alike.
struct link_model {
  std::chrono::nanoseconds latency = std::chrono::microseconds{100};
  /// A random delay in addition to the latency, drawn uniformly from [0, jitter) with the network's
  /// seed. Messages between two nodes stay in order, as on a TCP connection.
  std::chrono::nanoseconds jitter = std::chrono::microseconds{50};
  double bytes_per_second = 1e9;
  /// Largest number of bytes that a channel has in transit in one direction. Further bytes wait in
  /// its socket, as on a TCP connection. Must not be 0.
  std::size_t in_transit = std::numeric_limits<std::size_t>::max();
};

/// What happens to a message. Tests use it to inject faults.
enum class verdict { deliver, drop, duplicate };

/// Decides what happens to a message between actors on different nodes; called before it is sent.
/// Only link actors send messages to other nodes: frames, chunks, credits. A frame contains a
/// message of another actor.
using message_judge =
  std::function<verdict(sim_node from, sim_node to, const caf::message& content)>;

/// Connects nodes that are all in one actor system. Messages between nodes are encoded, delayed on
/// the actor clock, and decoded, so that only bytes pass, as on a real network. Deterministic for a
/// seed. Single-threaded; use it under the test scheduler.
class simulated_network {
public:
  simulated_network(caf::actor_system& sys, std::uint64_t seed, link_model model);
  ~simulated_network();
  simulated_network(const simulated_network&) = delete;
  simulated_network& operator=(const simulated_network&) = delete;

  /// Makes a node reachable at an address.
  void listen(sim_node node, const std::string& address, caf::strong_actor_ptr handle);

  /// The transport of one node, which connects it to other nodes.
  std::shared_ptr<transport> transport_of(sim_node node);

  void judge_with(message_judge judge) { judge_ = std::move(judge); }

  /// Sends bytes of a simulated channel. Returns the time at which they arrive, or nothing if they
  /// are lost.
  std::optional<std::chrono::steady_clock::time_point> carry(sim_node from, sim_node to,
                                                             std::span<const char> bytes);

  /// False while partition() makes the messages between these nodes get lost.
  bool connected(sim_node a, sim_node b) const { return !partitions_.contains(std::minmax(a, b)); }

  std::chrono::nanoseconds latency() const noexcept { return model_.latency; }
  std::size_t in_transit() const noexcept { return model_.in_transit; }

  /// Breaks the connections between two nodes. Both nodes notice this after a latency, and can
  /// connect again.
  void cut(sim_node a, sim_node b);

  /// Makes node `viewer` believe that its connections to `other` broke, although they work. Node
  /// `other` notices nothing.
  void mislead(sim_node viewer, sim_node other);

  /// From now on, messages between the nodes are lost, and neither node notices.
  void partition(sim_node a, sim_node b) { partitions_.insert(std::minmax(a, b)); }

  /// Undoes partition().
  void heal(sim_node a, sim_node b) { partitions_.erase(std::minmax(a, b)); }

  /// Breaks all connections between this node and other nodes. The nodes at both ends notice, as
  /// after cut().
  void isolate(sim_node node);

  /// A hash over all messages sent so far: time, sender, receiver and bytes.
  std::uint64_t trace_hash() const noexcept { return trace_; }
  std::uint64_t messages() const noexcept { return messages_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

  /// Drops all handles to actors.
  void clear();

private:
  class proxy;
  class node_transport;
  class reaper;

  using pair = std::pair<sim_node, sim_node>;

  struct proxy_key {
    sim_node viewer;
    caf::actor_id target;
    auto operator<=>(const proxy_key&) const = default;
  };

  /// The proxy on node `viewer` for an actor of node `home`.
  caf::strong_actor_ptr proxy_for(sim_node viewer, sim_node home,
                                  const caf::strong_actor_ptr& target);
  void transmit(const proxy& via, caf::mailbox_element_ptr what);
  void deliver(const proxy& via, const caf::mailbox_element& what, const std::vector<char>& bytes);
  void kill_later(const caf::strong_actor_ptr& victim, sim_node from, sim_node to,
                  caf::error reason);
  std::chrono::steady_clock::time_point arrival(sim_node from, sim_node to, std::size_t bytes);
  void dial(sim_node from, const task_name& task, const std::string& address,
            dial_listener listener);
  void mix(sim_node from, sim_node to, std::span<const char> bytes);

  caf::actor_system& sys_;
  link_model model_;
  random_stream random_;
  message_judge judge_;
  std::map<std::string, std::pair<sim_node, caf::strong_actor_ptr>> listening_;
  std::map<proxy_key, caf::strong_actor_ptr> proxies_;
  std::map<pair, std::chrono::steady_clock::time_point> busy_until_;
  std::set<pair> partitions_;
  caf::actor reaper_;
  std::uint64_t trace_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
};

} // namespace troupe
