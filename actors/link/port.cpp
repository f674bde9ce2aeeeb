#include "actors/link/port.hpp"

#include <caf/detail/sync_request_bouncer.hpp>

namespace troupe {

port::port(caf::actor_config& cfg, caf::strong_actor_ptr link, endpoint to)
  : caf::actor_proxy(cfg), link_(std::move(link)), to_(to) {}

port::port(caf::actor_config& cfg, caf::strong_actor_ptr link, std::uint64_t answers)
  : caf::actor_proxy(cfg), link_(std::move(link)), answers_(answers) {}

port::~port() = default;

void port::enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) {
  if (closed_) {
    caf::detail::sync_request_bouncer bounce{caf::exit_reason::remote_link_unreachable};
    bounce(*what);
    return;
  }
  outbound x;
  x.to = to_;
  x.answers = answers_;
  x.sender = std::move(what->sender);
  x.mid = what->mid;
  x.content = what->move_content_to_message();
  // Forwards a request as a request, so that a link that has ended refuses it.
  const auto mid = x.mid.is_request() ? x.mid : caf::make_message_id();
  auto sender = x.mid.is_request() ? x.sender : nullptr;
  link_->enqueue(caf::make_mailbox_element(std::move(sender), mid, {}, std::move(x)), context);
}

void port::kill_proxy(caf::execution_unit* context, caf::error reason) {
  closed_ = true;
  cleanup(std::move(reason), context);
}

} // namespace troupe
