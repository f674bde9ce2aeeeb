#include "actors/link/port.hpp"

#include "actors/link/link_session.hpp"

#include <caf/detail/sync_request_bouncer.hpp>

namespace troupe {

port::port(caf::actor_config& cfg, std::shared_ptr<link_session> session, endpoint to)
  : caf::actor_proxy(cfg), session_(std::move(session)), to_(to) {}

port::port(caf::actor_config& cfg, std::shared_ptr<link_session> session, std::uint64_t answers)
  : caf::actor_proxy(cfg), session_(std::move(session)), answers_(answers) {}

port::~port() = default;

void port::enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) {
  if (closed_)
    caf::detail::sync_request_bouncer{caf::exit_reason::remote_link_unreachable}(*what);
  else if (answers_ != 0)
    session_->answer(answers_, what->move_content_to_message(), context);
  else
    session_->send(to_, *what, context);
}

bool port::on_this_host() const {
  return session_->on_this_host();
}

bool port::lends() const {
  return session_->lends();
}

bool port::delivers() const {
  return session_->has_channel();
}

const std::shared_ptr<payload_meter>& port::meter() const {
  return session_->meter();
}

void port::kill_proxy(caf::execution_unit* context, caf::error reason) {
  closed_ = true;
  cleanup(std::move(reason), context);
}

} // namespace troupe
