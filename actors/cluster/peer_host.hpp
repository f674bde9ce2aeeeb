#pragma once

#include "actors/cluster/peer_node.hpp"
#include "actors/link/channel_host.hpp"
#include "kernels/function_ref.hpp"

#include <functional>
#include <memory>

namespace troupe {

struct peer_host_options {
  /// Options of the peer_node. The constructor of peer_host sets `net`, `links.channels` and
  /// `incarnation`. If `spawn_resident` is set, the constructor also sets `resident`.
  peer_node_options node;
  /// Spawns the resident: the actor of this process that peers can reach. The argument lets the
  /// resident's thread read the sockets while it waits for messages (see spawner::spawn_computing).
  /// It is null if there are no sockets.
  std::function<caf::strong_actor_ptr(std::shared_ptr<idle_task>)> spawn_resident = {};
  /// The address ("host:port") at which other processes find this process. Empty if no other
  /// process dials this one.
  std::string address;
  /// How messages travel. `automatic`: processes on one host share memory, and all others use TCP.
  /// `tcp`: all processes use TCP. `basp`: all messages travel over the framework's own protocol
  /// and its connection.
  enum class transport : std::uint8_t { automatic, tcp, basp };
  transport by = transport::automatic;
  /// A connection that stays broken for this long ends, and its peer counts as lost. If this is
  /// more than channel_host_options::grace, that limit applies instead. It is also how long the
  /// destructor waits at most until peers have received all messages and released shared memory.
  std::chrono::milliseconds deadline{10'000};
};

/// A peer_node and its sockets. The destructor ends them in the right order. The functions block,
/// so do not call them from an actor. Only one thread at a time may use the object.
class peer_host {
public:
  /// Listens for peers. The system must have loaded `caf::io::middleman`. Throws input_error if the
  /// system has not loaded it, or if this process cannot listen at the address.
  peer_host(caf::actor_system& sys, peer_host_options options);

  /// Ends the node, after the last messages are written. If there is a resident, its owner must end
  /// it first.
  ~peer_host();

  peer_host(const peer_host&) = delete;
  peer_host& operator=(const peer_host&) = delete;

  /// Connects to all peers: see connect_peers.
  caf::expected<peers_connected> connect();

  /// Reads messages on the calling thread until done() is true: see channel_host::read_until. Call
  /// it on a thread that would otherwise sleep until a peer's message arrives. It gives up after a
  /// short time without a message.
  /// @return done()
  bool read_until(function_ref<bool()> done);

private:
  caf::scoped_actor self_;
  std::shared_ptr<channel_host> channels_;
  peer_node_actor node_;
  std::uint16_t port_ = 0;
};

} // namespace troupe
