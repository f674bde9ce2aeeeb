#pragma once

#include "actors/link/channel_limits.hpp"
#include "actors/link/directory.hpp"
#include "actors/payload_meter.hpp"
#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include "messages/caf_shim.hpp"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

class stream_channel;

/// A message that a port (the proxy of a remote actor) hands to its link to send. Used only if the
/// link has no channel.
struct outbound {
  proto::Frame frame;
  caf::message content;
};

/// Tells a link that its peer has sent a message without permission (permissions.hpp). A session
/// sends this only for the first of these messages.
struct message_refused {
  std::string text;
};

/// The state that a link, its ports and its channel share: the requests that wait for an answer,
/// and the channel itself. If there is a channel, ports write to it directly, and it delivers the
/// peer's messages directly to their receivers. These messages do not pass through the link's
/// actor. Thread-safe.
class link_session : public std::enable_shared_from_this<link_session> {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// @param link the link's actor; kept alive until close()
  /// @param meter also counts what meter() counts; may be null
  link_session(caf::actor_system& sys, std::shared_ptr<directory> local, caf::strong_actor_ptr link,
               std::shared_ptr<payload_meter> meter = nullptr);
  ~link_session();

  /// From now on, messages use this channel. Returns false if close() was called before.
  bool use(std::shared_ptr<stream_channel> channel);
  bool has_channel() const;
  /// True if the connection of the channel broke, and is not restored yet.
  bool broken() const;

  /// The time since the peer sent something. 0 if there is no channel.
  std::chrono::nanoseconds silent_for() const;

  /// True if the peer is known to run on this host.
  bool on_this_host() const;

  /// True if large payloads are not sent, because both processes read them in each other's memory.
  /// False for a peer on this host whose channel is a TCP connection.
  bool lends() const;

  /// Counts the bytes of large payloads on this link.
  const std::shared_ptr<payload_meter>& meter() const noexcept { return meter_; }

  /// Sets the peer's name. Before this call, all messages of the peer are refused.
  void introduce(const link_peer& peer);

  /// Number of messages so far that the peer has sent without permission.
  std::uint64_t refused() const noexcept { return refused_; }

  /// See stream_channel::limit().
  void limit(const channel_limits& x);

  /// From now on, the peer may only ask to join. Call it if the peer's task was started twice, and
  /// the first start still has a link to this node. The answer to the request then says why the
  /// peer may not join.
  void park() noexcept { parked_ = true; }
  /// Ends park(): the first start has ended.
  void unpark() noexcept { parked_ = false; }

  /// True after close().
  bool closed() const;

  /// See stream_channel::keep_alive(). Returns true if there is no channel.
  bool keep_alive(std::chrono::nanoseconds suspect_after);

  /// Sends a message from a local actor to an actor of the peer. If it is a request, the sender
  /// gets the answer. After close(), a request fails at once.
  void send(const endpoint& to, caf::mailbox_element& what, caf::execution_unit* context);

  /// Answers the peer's request number `id`.
  void answer(std::uint64_t id, caf::message content, caf::execution_unit* context);

  /// Delivers a message of the peer to its receiver, if the peer may send it (permissions.hpp). If
  /// not, a request is answered with an error, and any other message is dropped.
  void receive(const proto::Frame& frame, caf::message content, caf::execution_unit* context);

  /// Drops requests that were made before `limit`. Returns true if newer requests are left.
  bool forget_before(time_point limit);

  /// The link has ended: waiting requests fail with `error`.
  void close(const caf::error& error, caf::execution_unit* context);

private:
  struct pending_request {
    caf::strong_actor_ptr sender;
    caf::message_id mid;
    time_point since;
  };

  void transmit(proto::Frame frame, caf::message content, caf::execution_unit* context);
  /// The reason why the peer may not send this message; empty if the peer may send it.
  std::string problem_of(const endpoint& to, const std::optional<link_peer>& only,
                         const caf::message& content) const;
  void refuse(const proto::Frame& frame, const std::string& text, caf::execution_unit* context);
  void receive_answer(std::uint64_t id, caf::message content, caf::execution_unit* context);

  caf::actor_system& sys_;
  std::shared_ptr<directory> local_;
  const std::shared_ptr<payload_meter> meter_;

  mutable std::mutex mutex_;
  bool closed_ = false;
  std::optional<link_peer> peer_;
  std::optional<channel_limits> limits_;
  std::atomic<bool> parked_ = false;
  /// Null after close().
  caf::strong_actor_ptr link_;
  /// Null if the link has no channel. The link's actor then sends the messages.
  std::shared_ptr<stream_channel> channel_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, pending_request> requests_;
  std::atomic<std::uint64_t> refused_ = 0;
};

} // namespace troupe

template <>
struct troupe::is_local_message<troupe::outbound> : std::true_type {};
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::outbound)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::message_refused)
