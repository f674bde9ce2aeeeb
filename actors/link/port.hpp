#pragma once

#include "messages/caf_shim.hpp"
#include "messages/names.hpp"

#include <atomic>

namespace troupe {

/// What a port hands to its link: a message from a local actor to an actor on the peer, or an
/// answer to a request of the peer.
struct outbound {
  /// Receiver, unless this is an answer.
  endpoint to;
  /// Ticket of the peer's request that this answers; 0 otherwise.
  std::uint64_t answers = 0;
  /// Local sender and its request, if it waits for an answer.
  caf::strong_actor_ptr sender;
  caf::message_id mid;
  caf::message content;
};

/// A proxy of an actor on another node. Local actors send, request and monitor as if the actor were
/// here. The port forwards everything to its link. The handle is valid until the link is lost; then
/// monitors are notified, and requests fail at once.
class port final : public caf::actor_proxy {
public:
  /// Port to an actor that the peer knows by name.
  port(caf::actor_config& cfg, caf::strong_actor_ptr link, endpoint to);

  /// Port through which a local actor answers request number `answers` of the peer.
  port(caf::actor_config& cfg, caf::strong_actor_ptr link, std::uint64_t answers);

  ~port() override;

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;

private:
  caf::strong_actor_ptr link_;
  endpoint to_;
  std::uint64_t answers_ = 0;
  std::atomic<bool> closed_ = false;
};

/// Whether a handle stands for an actor on another node.
template <class Handle>
bool is_port(const Handle& x) {
  return dynamic_cast<const port*>(caf::actor_cast<caf::abstract_actor*>(x)) != nullptr;
}

/// Makes a port of either kind.
template <class Target>
caf::strong_actor_ptr make_port(caf::actor_system& sys, caf::strong_actor_ptr link, Target target) {
  caf::actor_config cfg;
  return caf::make_actor<port, caf::strong_actor_ptr>(sys.next_actor_id(), sys.node(), &sys, cfg,
                                                      std::move(link), std::move(target));
}

} // namespace troupe

template <>
struct troupe::is_local_message<troupe::outbound> : std::true_type {};
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::outbound)
