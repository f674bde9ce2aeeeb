#pragma once

#include "actors/cluster/transport.hpp"
#include "actors/link/link.hpp"
#include "actors/tick.hpp"
#include "messages/errors.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct peer_node_options {
  task_name self;
  /// The actor of this node that peers can reach; null if there is none. When it ends, the node
  /// ends.
  caf::strong_actor_ptr resident;
  /// The service name under which peers find this node's resident, and this node finds theirs.
  proto::Service service = proto::SERVICE_UNSET;

  struct peer {
    task_name task;
    /// The peer's name in messages, such as "rank 1".
    std::string name;
    std::string address;
    /// True if this node dials the peer. False if the peer dials this node.
    bool dial = true;
  };
  std::vector<peer> peers;
  /// Largest number of other processes that may be connected at the same time, in addition to the
  /// peers.
  std::size_t strangers = 0;
  /// If true, a peer that is lost after all peers were connected may connect again.
  bool reconnect = false;

  std::shared_ptr<transport> net;
  link_options links;
  /// How long to wait for the peers.
  std::chrono::milliseconds patience{30'000};
  /// Differs for each start of a process.
  std::uint64_t incarnation = 1;
};

/// Connects to all peers, or again to lost peers. The answer comes when all peers are connected. If
/// this takes longer than `patience`, the answer is errc::timed_out. If a peer refuses, the answer
/// is errc::join_refused, and comes at once.
struct connect_peers {};

/// The answer to connect_peers: proxies of the residents of all peers, in the order of the peers. A
/// proxy becomes invalid when its link is lost.
struct peers_connected {
  std::vector<caf::strong_actor_ptr> residents;
};

/// Ends the node.
struct leave_peers {};

/// A node sends this to itself to try again to reach a peer.
struct dial_peer {
  std::size_t peer = 0;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::connect_peers)
TROUPE_LOCAL_MESSAGE(troupe::peers_connected)
TROUPE_LOCAL_MESSAGE(troupe::leave_peers)
TROUPE_LOCAL_MESSAGE(troupe::dial_peer)

namespace troupe {

using peer_node_actor =
  caf::typed_actor<rpc<peers_connected, connect_peers>, rpc<void, proto::Hello>, rpc<void, dialled>,
                   rpc<void, link_up>, rpc<void, link_down>, rpc<void, link_notice>,
                   rpc<void, dial_peer>, rpc<void, leave_peers>, rpc<void, tick>>;

/// Connects an actor of this process (the *resident*) to actors of other processes, with one link
/// to each process. Used by programs without a coordinator. A process that may not connect receives
/// the reason. The node ends with its resident, or when it receives leave_peers.
class peer_node : public guarded<peer_node_actor::base> {
public:
  using super = guarded<peer_node_actor::base>;

  peer_node(caf::actor_config& cfg, peer_node_options options);

  const char* name() const override { return "troupe.peer_node"; }

protected:
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  struct connection {
    caf::actor link;
    caf::strong_actor_ptr port;
    std::shared_ptr<link_session> session;
  };

  caf::result<peers_connected> on_connect();
  void on_hello(const proto::Hello& x);
  std::string refusal(const proto::Hello& x) const;
  void free_place();
  void dial(std::size_t peer);
  void dial_later(std::size_t peer);
  void on_dialled(const dialled& x);
  void on_link_up(const link_up& x);
  void on_link_down(const link_down& x);
  void lose(std::size_t peer, const std::string& reason);
  void on_tick();
  void give_up(const std::string& reason, errc code);
  std::optional<std::size_t> find(const task_name& task) const;
  peers_connected all() const;
  bool complete() const { return links_.size() == options_.peers.size(); }

  peer_node_options options_;
  std::shared_ptr<directory> local_ = std::make_shared<directory>();
  std::map<std::size_t, connection> links_;
  /// The peers that this node tries to reach: with one attempt at a time for each of them. Each has
  /// the link of the attempt. It is null while this node connects or pauses.
  std::map<std::size_t, caf::actor> dialling_;
  /// The links of processes that are not in the list of peers. Each has the time at which its
  /// process connected. The time is removed when the link is up.
  std::map<caf::actor_addr, std::optional<std::chrono::steady_clock::time_point>> strangers_;
  /// By peer: the reason why it has not been reached yet.
  std::map<std::size_t, std::string> problems_;
  std::optional<caf::typed_response_promise<peers_connected>> answer_;
  std::chrono::steady_clock::time_point until_;
  bool met_ = false;
  /// By peer: the number of attempts to reach it since it was last connected.
  std::map<std::size_t, int> attempts_;
  std::uint64_t jitter_;
};

} // namespace troupe
