#include "actors/link/link_session.hpp"

#include "actors/link/port.hpp"
#include "actors/link/stream_channel.hpp"
#include "messages/errors.hpp"

#include <caf/detail/sync_request_bouncer.hpp>

#include <spdlog/spdlog.h>

namespace troupe {

link_session::link_session(caf::actor_system& sys, std::shared_ptr<directory> local,
                           caf::strong_actor_ptr link, std::shared_ptr<payload_meter> meter)
  : sys_(sys), local_(std::move(local)), meter_(std::make_shared<payload_meter>(std::move(meter))),
    link_(std::move(link)) {}

link_session::~link_session() = default;

bool link_session::use(std::shared_ptr<stream_channel> channel) {
  channel->measure(meter_);
  const std::lock_guard guard{mutex_};
  if (!closed_)
    channel_ = std::move(channel);
  if (channel_ && limits_)
    channel_->limit(*limits_);
  return !closed_;
}

bool link_session::has_channel() const {
  const std::lock_guard guard{mutex_};
  return channel_ != nullptr;
}

bool link_session::broken() const {
  const std::lock_guard guard{mutex_};
  return channel_ && !channel_->resumed();
}

std::chrono::nanoseconds link_session::silent_for() const {
  const std::lock_guard guard{mutex_};
  return channel_ ? channel_->silent_for() : std::chrono::nanoseconds{0};
}

bool link_session::on_this_host() const {
  const std::lock_guard guard{mutex_};
  return channel_ && channel_->on_this_host();
}

bool link_session::lends() const {
  const std::lock_guard guard{mutex_};
  return channel_ && channel_->lends();
}

void link_session::limit(const channel_limits& x) {
  const std::lock_guard guard{mutex_};
  limits_ = x;
  if (channel_)
    channel_->limit(x);
}

void link_session::introduce(const link_peer& peer) {
  const std::lock_guard guard{mutex_};
  peer_ = peer;
}

bool link_session::keep_alive(std::chrono::nanoseconds suspect_after) {
  std::shared_ptr<stream_channel> channel;
  {
    const std::lock_guard guard{mutex_};
    channel = channel_;
  }
  return !channel || channel->keep_alive(suspect_after);
}

void link_session::send(const endpoint& to, caf::mailbox_element& what,
                        caf::execution_unit* context) {
  proto::Frame frame;
  *frame.mutable_to() = to_proto(to);
  const auto mid = what.mid;
  frame.set_kind(mid.is_request() ? proto::Frame::REQUEST : proto::Frame::ONE_WAY);
  bool closed = false;
  {
    const std::lock_guard guard{mutex_};
    closed = closed_;
    frame.set_id(next_id_++);
    if (mid.is_request() && !closed)
      requests_.emplace(frame.id(), pending_request{what.sender, mid, sys_.clock().now()});
  }
  if (closed)
    caf::detail::sync_request_bouncer{caf::exit_reason::remote_link_unreachable}(what);
  else
    transmit(std::move(frame), what.move_content_to_message(), context);
}

void link_session::answer(std::uint64_t id, caf::message content, caf::execution_unit* context) {
  proto::Frame frame;
  frame.set_kind(proto::Frame::RESPONSE);
  frame.set_id(id);
  transmit(std::move(frame), std::move(content), context);
}

void link_session::transmit(proto::Frame frame, caf::message content,
                            caf::execution_unit* context) {
  std::shared_ptr<stream_channel> channel;
  caf::strong_actor_ptr link;
  {
    const std::lock_guard guard{mutex_};
    channel = channel_;
    link = link_;
  }
  if (channel) {
    const auto id = frame.id();
    const auto kind = frame.kind();
    if (auto error = channel->send(std::move(frame), std::move(content))) {
      spdlog::error("a message cannot be sent: {}", explain(error));
      if (kind == proto::Frame::REQUEST)
        receive_answer(id, caf::make_message(std::move(error)), context);
    }
  } else if (link)
    link->enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), {},
                                            outbound{std::move(frame), std::move(content)}),
                  context);
}

void link_session::receive(const proto::Frame& frame, caf::message content,
                           caf::execution_unit* context) {
  if (frame.kind() == proto::Frame::RESPONSE) {
    receive_answer(frame.id(), std::move(content), context);
    return;
  }
  const bool is_request = frame.kind() == proto::Frame::REQUEST;
  endpoint to;
  directory::entry target;
  if (from_proto(frame.to(), to))
    target = local_->entry_of(to);
  if (const auto why = problem_of(to, target.only, content); !why.empty()) {
    refuse(frame, why, context);
    return;
  }
  caf::strong_actor_ptr sender;
  auto mid = caf::make_message_id();
  if (is_request) {
    sender = make_port(sys_, shared_from_this(), frame.id());
    mid = caf::make_message_id(1);
  }
  if (target.actor) {
    target.actor->enqueue(caf::make_mailbox_element(std::move(sender), mid, {}, std::move(content)),
                          context);
  } else if (is_request) {
    auto error = make_error(errc::no_such_endpoint, to_string(to) + " is not on this node");
    answer(frame.id(), caf::make_message(std::move(error)), context);
  } else {
    spdlog::debug("dropped a message for {}, which is not on this node", to_string(to));
  }
}

std::string link_session::problem_of(const endpoint& to, const std::optional<link_peer>& only,
                                     const caf::message& content) const {
  std::optional<link_peer> peer;
  {
    const std::lock_guard guard{mutex_};
    peer = peer_;
  }
  if (!peer)
    return "a node that has not introduced itself sent a message to " + to_string(to);
  const bool joins =
    to.service == proto::COORDINATOR && !content.empty() && content.match_element<proto::Join>(0);
  if (parked_ && !joins)
    return "another start of " + to_string(peer->task)
      + " is connected; this one sent a message to " + to_string(to);
  auto why = refusal(*peer, to, content);
  if (why.empty() && only && !speaks_for(*peer, *only))
    why = "a message that only " + to_string(only->task) + " may send there";
  if (why.empty())
    return why;
  const auto type = content.empty() ? "()" : sys_.types().portable_name(content.type(0));
  return to_string(peer->task) + " sent " + type + " to " + to_string(to) + ": " + why;
}

void link_session::refuse(const proto::Frame& frame, const std::string& text,
                          caf::execution_unit* context) {
  spdlog::debug("refused: {}", text);
  if (frame.kind() == proto::Frame::REQUEST)
    answer(frame.id(), caf::make_message(make_error(errc::malformed, text)), context);
  if (refused_++ > 0)
    return;
  caf::strong_actor_ptr link;
  {
    const std::lock_guard guard{mutex_};
    link = link_;
  }
  if (link)
    link->enqueue(
      caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, message_refused{text}),
      context);
}

void link_session::receive_answer(std::uint64_t id, caf::message content,
                                  caf::execution_unit* context) {
  caf::strong_actor_ptr link;
  pending_request request;
  {
    const std::lock_guard guard{mutex_};
    auto x = requests_.extract(id);
    if (!x)
      return;
    request = std::move(x.mapped());
    link = link_;
  }
  request.sender->enqueue(
    caf::make_mailbox_element(link, request.mid.response_id(), {}, std::move(content)), context);
}

bool link_session::forget_before(time_point limit) {
  std::vector<caf::strong_actor_ptr> dropped;
  const std::lock_guard guard{mutex_};
  std::erase_if(requests_, [&](auto& x) {
    const bool old = x.second.since < limit;
    if (old)
      dropped.push_back(std::move(x.second.sender));
    return old;
  });
  return !requests_.empty();
}

// Ends the session, and breaks a cycle of references. An actor that waits for an answer holds a
// port, the port holds this session, and the session holds the actor.
bool link_session::closed() const {
  const std::lock_guard guard{mutex_};
  return closed_;
}

void link_session::close(const caf::error& error, caf::execution_unit* context) {
  std::map<std::uint64_t, pending_request> requests;
  std::shared_ptr<stream_channel> channel;
  caf::strong_actor_ptr link;
  {
    const std::lock_guard guard{mutex_};
    closed_ = true;
    requests_.swap(requests);
    channel_.swap(channel);
    link_.swap(link);
  }
  for (auto& [id, request] : requests)
    request.sender->enqueue(
      caf::make_mailbox_element(link, request.mid.response_id(), {}, caf::make_message(error)),
      context);
  if (channel)
    channel->end();
}

} // namespace troupe
