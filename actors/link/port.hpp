#pragma once

#include "messages/caf_shim.hpp"
#include "messages/names.hpp"

#include <atomic>
#include <memory>

namespace troupe {

class link_session;
class payload_meter;

/// A proxy for an actor on another node. Local actors send messages and requests to it, and monitor
/// it, as if the actor were local. The port passes everything to the session of its link
/// (link_session), which sends it to the other node. The handle is valid until the link is lost.
/// After that, monitors are notified, and requests fail at once.
class port final : public caf::actor_proxy {
public:
  /// A port to an actor that the peer knows by name.
  port(caf::actor_config& cfg, std::shared_ptr<link_session> session, endpoint to);

  /// A port through which a local actor answers the peer's request with the number `answers`.
  port(caf::actor_config& cfg, std::shared_ptr<link_session> session, std::uint64_t answers);

  ~port() override;

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;

  /// See link_session::on_this_host().
  bool on_this_host() const;
  /// See link_session::lends().
  bool lends() const;
  /// True if every message arrives, or the link ends. False if the link has no channel.
  bool delivers() const;
  /// See link_session::meter().
  const std::shared_ptr<payload_meter>& meter() const;

private:
  std::shared_ptr<link_session> session_;
  endpoint to_;
  /// 0 if this port does not answer a request.
  std::uint64_t answers_ = 0;
  std::atomic<bool> closed_ = false;
};

/// The port that this handle refers to. Null if the actor is on this node.
template <class Handle>
const port* port_of(const Handle& x) {
  return dynamic_cast<const port*>(caf::actor_cast<caf::abstract_actor*>(x));
}

/// True if the actor of this handle is on another node.
template <class Handle>
bool is_port(const Handle& x) {
  return port_of(x) != nullptr;
}

/// True if a message to this actor cannot be lost while the handle is valid. Then it is useless to
/// repeat a request.
template <class Handle>
bool is_delivered(const Handle& x) {
  const auto* to = port_of(x);
  return to == nullptr || to->delivers();
}

/// True if messages to this actor travel to another host.
template <class Handle>
bool is_on_another_host(const Handle& x) {
  const auto* to = port_of(x);
  return to != nullptr && !to->on_this_host();
}

/// True if this actor is in another process, and both processes read each other's payloads without
/// a copy.
template <class Handle>
bool shares_memory(const Handle& x) {
  const auto* to = port_of(x);
  return to != nullptr && to->lends();
}

/// Makes a port. `target` is an endpoint, or the number of the peer's request that the port
/// answers.
template <class Target>
caf::strong_actor_ptr make_port(caf::actor_system& sys, std::shared_ptr<link_session> session,
                                Target target) {
  caf::actor_config cfg;
  return caf::make_actor<port, caf::strong_actor_ptr>(sys.next_actor_id(), sys.node(), &sys, cfg,
                                                      std::move(session), std::move(target));
}

} // namespace troupe
