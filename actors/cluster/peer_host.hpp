#pragma once

#include "actors/cluster/peer_node.hpp"

namespace troupe {

struct peer_host_options {
  /// Without `net`, `links.channels` and `incarnation`.
  peer_node_options node;
  /// "host:port" where others find this process; empty: nobody looks for it.
  std::string address;
  /// What messages travel by. automatic: processes of one host share memory, others use TCP. basp:
  /// by the framework's own protocol, with everything else on its connection.
  enum class transport : std::uint8_t { automatic, tcp, basp };
  transport by = transport::automatic;
  /// How long a connection may be broken, and how long the end of this object waits for peers.
  std::chrono::milliseconds deadline{10'000};
};

/// A peer_node with what it needs: sockets, and an order in which they end. Its functions block; do
/// not call them from an actor. One thread at a time.
class peer_host {
public:
  /// Listens. The system must have loaded `caf::io::middleman`. Throws input_error if it has not,
  /// or if this cannot listen at the address.
  peer_host(caf::actor_system& sys, peer_host_options options);

  /// Ends the node after its resident, if there is one, which the owner ends before. What was said
  /// last is written.
  ~peer_host();

  peer_host(const peer_host&) = delete;
  peer_host& operator=(const peer_host&) = delete;

  /// See connect_peers.
  caf::expected<peers_connected> connect();

private:
  caf::scoped_actor self_;
  std::shared_ptr<channel_host> channels_;
  peer_node_actor node_;
  std::uint16_t port_ = 0;
};

} // namespace troupe
