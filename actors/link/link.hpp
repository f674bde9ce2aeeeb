#pragma once

#include "actors/link/directory.hpp"
#include "actors/link/port.hpp"
#include "messages/interfaces.hpp"
#include "messages/transfer.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <variant>

namespace troupe {

/// The link's peer has introduced itself: ports may be made.
struct link_up {
  task_name peer;
  std::uint64_t incarnation = 0;
};

/// The link can no longer be used.
struct link_down {
  task_name peer;
  std::string reason;
  /// This end had dialled.
  bool dialled = false;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::link_up)
TROUPE_LOCAL_MESSAGE(troupe::link_down)

namespace troupe {

struct link_options {
  transfer_limits transfer;
  /// A transfer that has not moved for this long is given up.
  std::chrono::milliseconds stall_timeout{60'000};
  /// A request whose answer never comes is kept for this long. This is longer than any deadline of
  /// the actor that asked.
  std::chrono::hours request_limit{24};
};

/// One end of the connection between two nodes. Local actors write to it through ports; it carries
/// their messages, requests and answers to the actors of the peer by name, in order, large payloads
/// in chunks. Below it is a channel: the handle of the other end, a remote actor (BASP) or a
/// simulated one. The link does not know which.
///
/// When the channel breaks, all pending requests fail with `errc::link_lost`, the owner receives
/// `link_down`, and the link quits. The node, which owns the ports to it, must kill them.
class link : public caf::event_based_actor {
public:
  /// The dialling end: introduces itself to `peer_node` as `self_task`.
  struct dial_to {
    caf::strong_actor_ptr peer_node;
    task_name peer_task;
    task_name self_task;
    std::uint64_t incarnation;
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

  struct pending_request {
    caf::strong_actor_ptr sender;
    caf::message_id mid;
    time_point since;
  };

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
  void on_outbound(outbound& x);
  void on_frame(const proto::Frame& x, const caf::message& content);
  void on_chunk(const proto::Chunk& x, const payload& data);
  void on_credit(const proto::Credit& x);
  void on_sweep();

  void send_chunks(const ticket& id, sending& x);
  void deliver(const proto::Frame& x, caf::message content);
  void deliver_answer(std::uint64_t id, caf::message content);
  void announce_up(const proto::TaskName& peer, std::uint64_t incarnation);
  void shut(const std::string& reason);
  void start_sweeping();

  caf::actor owner_;
  std::shared_ptr<directory> local_;
  std::variant<dial_to, accept_from> how_;
  link_options options_;
  /// The other end; null until it has spoken.
  caf::strong_actor_ptr peer_;
  task_name peer_task_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, pending_request> requests_;
  std::map<ticket, sending> sending_;
  std::map<ticket, receiving> receiving_;
  bool sweeping_ = false;
};

} // namespace troupe
