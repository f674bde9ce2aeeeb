#pragma once

#include "actors/link/channel_host.hpp"
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

/// The link's peer has introduced itself: ports may be made.
struct link_up {
  task_name peer;
  std::uint64_t incarnation = 0;
  /// For ports to the peer's actors.
  std::shared_ptr<link_session> session;
};

/// The link can no longer be used.
struct link_down {
  task_name peer;
  std::string reason;
  /// The same, where it is clear that it is about the connection to this peer.
  std::string cause;
  /// This end had dialled.
  bool dialled = false;
};

/// The link has a channel, or none is to be had.
struct channel_settled {
  std::string problem;
};

/// The link's channel can no longer be used.
struct channel_lost {
  std::string reason;
};

/// From now on, link_options::suspect_after is this.
struct change_patience {
  std::chrono::milliseconds suspect_after;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::link_up)
TROUPE_LOCAL_MESSAGE(troupe::link_down)
TROUPE_LOCAL_MESSAGE(troupe::channel_settled)
TROUPE_LOCAL_MESSAGE(troupe::channel_lost)
TROUPE_LOCAL_MESSAGE(troupe::change_patience)

namespace troupe {

struct link_options {
  transfer_limits transfer;
  /// A transfer that has not moved for this long is given up.
  std::chrono::milliseconds stall_timeout{60'000};
  /// A request whose answer never comes is kept for this long. This is longer than any deadline of
  /// the actor that asked.
  std::chrono::hours request_limit{24};
  /// A peer of which nothing was heard for so long over its channel is lost; on another host, if it
  /// cannot be reached again within channel_host_options::grace.
  std::chrono::milliseconds suspect_after{10'000};
  /// Makes a channel for the messages of each link. Null: they travel by the framework's protocol.
  std::shared_ptr<channel_host> channels;
};

/// One end of the connection between two nodes. It introduces its node to the other, over the
/// handle that the node has dialled: an actor of the framework's own network protocol (BASP), or a
/// simulated one. Then both agree on a *channel*, a connection of its own for the messages of the
/// link (stream_channel), which ports use without this actor. Where there is none, this actor sends
/// and receives them over the handle, large payloads in chunks.
///
/// When either breaks, all pending requests fail with `errc::link_lost`, the owner receives
/// `link_down`, and the link quits. The node, which owns the ports to it, must kill them.
class link : public caf::event_based_actor {
public:
  /// The dialling end: introduces itself to `peer_node` as `self_task`.
  struct dial_to {
    caf::strong_actor_ptr peer_node;
    task_name peer_task;
    task_name self_task;
    std::uint64_t incarnation;
    /// Host name or IP address.
    std::string address;
  };

  /// The dialled end: answers `hello`, whose sender is the other end.
  struct accept_from {
    caf::strong_actor_ptr peer_link;
    proto::Hello hello;
    task_name self_task;
    std::uint64_t incarnation;
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
  };

  struct receiving {
    proto::Frame frame;
    caf::message content;
    incoming_transfer transfer;
    time_point moved;
  };

  void greet();
  void on_welcome(const proto::Welcome& x);
  void on_channel_settled(const channel_settled& x);
  void on_channel_refused();
  void on_handle_lost(const std::string& reason);
  void on_outbound(outbound& x);
  void on_frame(const proto::Frame& x, const caf::message& content);
  void on_chunk(const proto::Chunk& x, const payload& data);
  void on_credit(const proto::Credit& x);
  void on_sweep();
  void on_sign_of_life();

  void send_chunks(const ticket& id, sending& x);
  channel_host::on_channel channel_listener();
  void introduce(const proto::TaskName& peer, std::uint64_t incarnation);
  void announce_up();
  void lose(const std::string& cause);
  void shut(const std::string& reason, const std::string& cause = {});
  void start_sweeping();

  caf::actor owner_;
  std::shared_ptr<directory> local_;
  std::variant<dial_to, accept_from> how_;
  link_options options_;
  /// The other end; null until it has spoken.
  caf::strong_actor_ptr peer_;
  task_name peer_task_;
  std::uint64_t peer_incarnation_ = 0;
  std::shared_ptr<link_session> session_;
  /// What the peer was offered.
  std::optional<proto::ChannelOffer> offer_;
  std::map<ticket, sending> sending_;
  std::map<ticket, receiving> receiving_;
  bool sweeping_ = false;
};

} // namespace troupe
