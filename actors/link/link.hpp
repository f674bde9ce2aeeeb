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
#include <functional>
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

/// A link sends this to its owner when the link has ended.
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

/// Tells a link that it now has a channel (stream_channel.hpp), or why it cannot get one.
struct channel_settled {
  /// Empty if the link has a channel.
  std::string problem;
};

/// Tells a link that its channel has ended.
struct channel_lost {
  std::string reason;
};

/// Tells a link to end. The default reason is for a peer that has opened a newer link.
struct end_link {
  std::string reason = "it has connected again";
};

/// How long a process that connects to a node has to become a peer. A node accepts only a limited
/// number of processes that are not peers yet. If the limit is reached, the node drops a process
/// that has exceeded this time, and accepts a new one.
inline constexpr std::chrono::seconds time_to_become_peer{3};

/// Gives a running link new values for its link_options `suspect_after`, `window` and `transfer`.
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
  /// Only for a link without a channel, which sends a large payload in chunks. If a payload makes
  /// no progress for this time, it is given up. If its message is one-way, the link ends, because
  /// no actor would send the message again.
  std::chrono::milliseconds stall_timeout{60'000};
  /// How long a link remembers a request without an answer. This is longer than any deadline of an
  /// actor that sends requests.
  std::chrono::hours request_limit{24};
  /// How long a peer may be silent on its channel. After this time, a peer on this host counts as
  /// lost. For a peer on another host, the connection counts as broken. That peer counts as lost
  /// only if the connection cannot be restored within `grace`.
  std::chrono::milliseconds suspect_after = stream_channel::first_suspicion;
  /// Limit for the bytes that wait for the peer: not sent, not acknowledged, or lent to it. If more
  /// bytes wait, the link ends. One message alone may exceed the limit.
  std::uint64_t window = std::uint64_t{1} << 36;
  /// See channel_limits::grace. If no time is set, channel_host_options::grace applies.
  std::optional<std::chrono::milliseconds> grace;
  /// The cluster's secret. Both ends of a link must prove that they know it. Empty if the cluster
  /// has no secret.
  std::string secret;
  /// Makes a channel for the messages of each link. If null, the messages travel over the
  /// framework's own network protocol.
  std::shared_ptr<channel_maker> channels;

  /// Counts the bytes of large payloads of all links of this node. May be null.
  std::shared_ptr<payload_meter> meter;

  channel_limits limits() const { return {window, transfer.max_bytes, grace}; }

  /// How long a peer that runs is silent at most. It sends something at least every quarter of
  /// `suspect_after`, and checks eight times within `suspect_after` whether this is due.
  static std::chrono::milliseconds longest_silence(std::chrono::milliseconds suspect_after) {
    return suspect_after * 3 / 8;
  }
};

/// One end of the connection between two nodes. First, both ends introduce their nodes to each
/// other. For this, a link sends messages to a CAF handle of an actor of the other node. They
/// travel over the framework's own network protocol (BASP) or a simulated network. Then both ends
/// agree on a *channel*: a separate connection for the messages of the link (stream_channel). The
/// proxies of remote actors (`port`) write to the channel directly, without this actor. Without a
/// channel, this actor sends and receives all messages over the handle, and sends large payloads in
/// chunks.
///
/// If the cluster has a secret, the dialled end proves in its Welcome that it knows the secret. The
/// dialling end answers with a Proof. Then a second Welcome follows, which offers the channel.
/// Before the second Welcome, both ends ignore all other messages.
///
/// The link ends when its channel ends. A link without a channel ends when the CAF handle becomes
/// invalid. Then all pending requests fail with `errc::link_lost`, the owner receives `link_down`,
/// and this actor quits. The owner must kill the ports to actors of the other node.
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
    /// See dialled::hang_up.
    std::function<void()> hang_up = {};
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
    /// How many bytes the peer has received.
    std::uint64_t credited = 0;
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
  void begin_signs_of_life();
  void on_sign_of_life();

  void send_chunks(const ticket& id, sending& x);
  channel_maker::on_channel channel_listener();
  void introduce(std::uint64_t incarnation);
  void on_introduction_limit();
  void announce_up();
  void lose(const std::string& cause);
  void shut(const std::string& reason, const std::string& cause = {}, bool refused = false);
  void start_sweeping();

  caf::actor owner_;
  std::shared_ptr<directory> local_;
  std::variant<dial_to, accept_from> how_;
  link_options options_;
  /// The link at the other end; null until it has sent a message.
  caf::strong_actor_ptr peer_;
  task_name peer_task_;
  std::uint64_t peer_incarnation_ = 0;
  /// True if the peer has introduced itself and, if the cluster has a secret, has proved that it
  /// knows the secret.
  bool introduced_ = false;
  /// Random texts of this node and of the peer, which the proofs contain (link_introduction). Empty
  /// if the cluster has no secret.
  std::string nonce_;
  std::string peer_nonce_;
  /// True if this end has dialled, has sent its proof, and has found the peer's proof correct. Only
  /// the second Welcome is then missing.
  bool proven_ = false;
  std::shared_ptr<link_session> session_;
  /// This end's offer of a channel, until the peer has connected or has refused the offer.
  std::optional<proto::ChannelOffer> offer_;
  std::map<ticket, sending> sending_;
  std::map<ticket, receiving> receiving_;
  bool sweeping_ = false;
  /// See sign_of_life.
  std::uint64_t series_ = 0;
};

} // namespace troupe
