#pragma once

#include "actors/link/channel_limits.hpp"
#include "actors/link/channel_maker.hpp"
#include "actors/link/guarded.hpp"
#include "actors/link/link_secret.hpp"
#include "actors/link/link_session.hpp"
#include "actors/link/port.hpp"
#include "messages/interfaces.hpp"
#include "messages/transfer.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <variant>

namespace troupe {

/// A link sends this to its owner when the peer has introduced itself. From now on, the owner can
/// make ports: proxies for the peer's actors.
struct link_up {
  task_name peer;
  std::uint64_t incarnation = 0;
  /// The argument of make_port() for these proxies.
  std::shared_ptr<link_session> session;
};

/// A link sends this to its owner when it can no longer be used.
struct link_down {
  task_name peer;
  std::string reason;
  /// The reason without the name of the peer, for texts that already name it.
  std::string cause;
  /// True if this end made the connection.
  bool dialled = false;
  /// True if the peer refused this node. `reason` is then the peer's text.
  bool refused = false;
};

/// The link now has a channel (stream_channel.hpp), or it cannot get one.
struct channel_settled {
  std::string problem;
};

/// The link can no longer use its channel.
struct channel_lost {
  std::string reason;
};

/// Ends the link. The default reason is for a peer that has opened a newer link.
struct end_link {
  std::string reason = "it has connected again";
};

/// A node has places for a limited number of processes that are not peers yet. If all are taken, a
/// process that has not become a peer within this time loses its place to the next one.
inline constexpr std::chrono::seconds time_to_become_peer{3};

/// Changes the link_options of the same names in a running link.
struct change_limits {
  std::chrono::milliseconds suspect_after;
  channel_limits channel;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::link_up)
TROUPE_LOCAL_MESSAGE(troupe::link_down)
TROUPE_LOCAL_MESSAGE(troupe::channel_settled)
TROUPE_LOCAL_MESSAGE(troupe::channel_lost)
TROUPE_LOCAL_MESSAGE(troupe::end_link)
TROUPE_LOCAL_MESSAGE(troupe::change_limits)

namespace troupe {

struct link_options {
  transfer_limits transfer;
  /// A transfer of a large payload in chunks is given up after this time without progress. If the
  /// payload belongs to a one-way message, the link ends, because nobody would send the message
  /// again.
  std::chrono::milliseconds stall_timeout{60'000};
  /// A request without an answer is kept for this long. This is longer than any deadline of an
  /// actor that sends requests.
  std::chrono::hours request_limit{24};
  /// If nothing has arrived from the peer over its channel for this long, a peer on this host
  /// counts as lost. For a peer on another host, the connection counts as broken. This peer counts
  /// as lost only if the connection cannot be restored within `grace`.
  std::chrono::milliseconds suspect_after = stream_channel::first_suspicion;
  /// Limit for bytes that wait for the peer: not sent, not acknowledged, or lent to it. If more
  /// bytes wait, the link ends. One message alone may be larger.
  std::uint64_t window = std::uint64_t{1} << 36;
  /// See channel_limits. If it has no value, channel_host_options::grace applies.
  std::optional<std::chrono::milliseconds> grace;
  /// The cluster's secret. Both ends of a link must prove that they know it. Empty if the cluster
  /// has none.
  std::string secret;
  /// Makes a channel for the messages of each link. If null, the messages travel over the
  /// framework's own network protocol.
  std::shared_ptr<channel_maker> channels;

  channel_limits limits() const { return {window, transfer.max_bytes, grace}; }
};

/// One end of the connection between two nodes. First, it introduces its node to the other node.
/// For this, it sends messages to a CAF handle of an actor of the other node, over the framework's
/// own network protocol (BASP) or over a simulated network. Then both ends agree on a *channel*: a
/// separate connection for the messages of the link (stream_channel). The proxies of remote actors
/// (`port`) write to the channel directly, without this actor. If there is no channel, this actor
/// sends and receives the messages over the handle. It then sends large payloads in chunks.
///
/// If the cluster has a secret, the dialled end proves in its Welcome that it knows the secret. The
/// dialling end answers with a Proof. Then a second Welcome follows, which offers the channel.
/// Before the second Welcome, both ends ignore all other messages.
///
/// When the channel ends, or the handle of a link without a channel becomes invalid, all pending
/// requests fail with `errc::link_lost`, the owner receives `link_down`, and the link quits. The
/// owner must kill the ports to actors of the other node.
///
/// From outside this process, this actor accepts messages only from the link at the other end.
class link : public guarded<caf::event_based_actor> {
public:
  using super = guarded<caf::event_based_actor>;

  /// For the dialling end, which introduces itself to `peer_node` as `self_task`.
  struct dial_to {
    caf::strong_actor_ptr peer_node;
    task_name peer_task;
    task_name self_task;
    std::uint64_t incarnation;
    /// Host name or IP address.
    std::string address;
  };

  /// For the dialled end, which answers `hello`. The sender of `hello` is the other end.
  struct accept_from {
    caf::strong_actor_ptr peer_link;
    proto::Hello hello;
    task_name self_task;
    std::uint64_t incarnation;
    /// True if the peer may only ask to join: see link_session::park().
    bool parked = false;
  };

  link(caf::actor_config& cfg, caf::actor owner, std::shared_ptr<directory> local, dial_to how,
       link_options options);
  link(caf::actor_config& cfg, caf::actor owner, std::shared_ptr<directory> local, accept_from how,
       link_options options);

  ~link() override;

  const char* name() const override { return "troupe.link"; }

protected:
  caf::behavior make_behavior() override;
  void on_exit() override;

private:
  using ticket = std::pair<proto::Frame::Kind, std::uint64_t>;
  using time_point = std::chrono::steady_clock::time_point;

  struct sending {
    outgoing_transfer transfer;
    time_point moved;
    std::uint64_t bytes = 0;
  };

  struct receiving {
    proto::Frame frame;
    caf::message content;
    incoming_transfer transfer;
    time_point moved;
  };

  void greet();
  bool from_peer() const;
  bool from_known_peer() const { return introduced_ && from_peer(); }
  template <class... Ts>
  auto by_peer(void (link::*handle)(const Ts&...));
  void welcome();
  void refuse_newcomer(const std::string& text);
  bool hear_welcome(const proto::Welcome& x);
  bool prove(const proto::Welcome& x);
  void on_welcome(const proto::Welcome& x);
  void on_proof(const proto::Proof& x);
  proto::Welcome make_welcome() const;
  link_introduction introduction(const link_peer& peer) const;
  void on_limits(const change_limits& x);
  void on_channel_settled(const channel_settled& x);
  void on_channel_refused(const proto::ChannelRefused& x);
  void on_refused(const proto::Failure& x);
  void on_handle_lost(const std::string& reason);
  void on_outbound(outbound& x);
  void on_frame(const proto::Frame& x, const caf::message& content);
  void on_chunk(const proto::Chunk& x, const payload& data);
  void on_credit(const proto::Credit& x);
  void on_sweep();
  void on_sign_of_life();

  void send_chunks(const ticket& id, sending& x);
  channel_maker::on_channel channel_listener();
  void introduce(std::uint64_t incarnation);
  void announce_up();
  void lose(const std::string& cause);
  void shut(const std::string& reason, const std::string& cause = {}, bool refused = false);
  void start_sweeping();

  caf::actor owner_;
  std::shared_ptr<directory> local_;
  std::variant<dial_to, accept_from> how_;
  link_options options_;
  /// The other end; null until it has sent a message.
  caf::strong_actor_ptr peer_;
  task_name peer_task_;
  std::uint64_t peer_incarnation_ = 0;
  /// True if the peer has introduced itself and, if the cluster has a secret, has proved that it
  /// knows the secret.
  bool introduced_ = false;
  /// If the cluster has a secret: the random text of this node, and of the peer.
  std::string nonce_;
  std::string peer_nonce_;
  /// Only at the dialling end: true if it has sent its proof, and the peer's proof is correct. It
  /// then waits for the second Welcome.
  bool proven_ = false;
  std::shared_ptr<link_session> session_;
  /// The offer of a channel that the peer has not taken up yet.
  std::optional<proto::ChannelOffer> offer_;
  std::map<ticket, sending> sending_;
  std::map<ticket, receiving> receiving_;
  bool sweeping_ = false;
};

} // namespace troupe
