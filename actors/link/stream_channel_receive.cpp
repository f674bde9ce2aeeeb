// A part of stream_channel: reads records from the socket and handles them.

#include "actors/link/stream_channel.hpp"
#include "actors/link/stream_records.hpp"
#include "messages/packed_floats.hpp"

#include <caf/binary_deserializer.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace troupe {

namespace {

/// Largest number of received file descriptors that no loan has used yet.
constexpr std::size_t max_descriptors = 64;
/// After this many reads or bytes in a row from one socket, other sockets have their turn.
constexpr int reads_in_a_row = 64;
constexpr std::uint64_t bytes_in_a_row = 2U << 20;
/// If this many records are not acknowledged, an acknowledgement is sent at once. For fewer
/// records, it waits for a message that can carry it, or for the next tick.
constexpr std::uint64_t max_unacknowledged = 64;

/// Limits for polling while the rest of a payload arrives. The reading thread polls for at most
/// `longest_poll` at a time. For each payload, it polls in total no longer than the payload's bytes
/// that have arrived would take at `polled_bytes_per_second`. So on a slow network, the thread
/// sleeps nearly all the time.
constexpr std::chrono::microseconds longest_poll{50};
constexpr double polled_bytes_per_second = 5e9;

std::string text_of(int error) {
  return std::generic_category().message(error);
}

} // namespace

void stream_channel::listen(events to) {
  events_ = std::move(to);
  if (over_)
    events_.closed(why_over_);
  else
    parse();
}

bool stream_channel::on_readable() {
  std::uint64_t bytes = 0;
  for (int i = 0; i < reads_in_a_row && bytes < bytes_in_a_row; ++i)
    if (!read_some(bytes))
      return false;
  return true;
}

/// Polls for a moment until more bytes of a payload arrive; returns false if none arrive. If this
/// thread slept instead, a sender on this host would have to wake it. That takes the sender about
/// 20 microseconds, in which it could send 200 KiB.
bool stream_channel::rest_arrives() {
  const std::chrono::duration<double> earned{static_cast<double>(body_read_)
                                             / polled_bytes_per_second};
  const auto most = std::min<clock::duration>(
    longest_poll, std::chrono::duration_cast<clock::duration>(earned) - polled_);
  const auto begin = now();
  auto passed = clock::duration::zero();
  pollfd socket{socket_.get(), POLLIN, 0};
  bool arrives = false;
  while (!arrives && passed < most) {
    arrives = ::poll(&socket, 1, 0) > 0;
    passed = now() - begin;
  }
  polled_ += passed;
  return arrives;
}

/// Reads once from the socket and handles the records. Adds the number of bytes to `bytes`. Returns
/// true if more data may be waiting.
bool stream_channel::read_some(std::uint64_t& bytes) {
  std::array<iovec, 2> parts{};
  std::size_t n = 0;
  const auto rest = body_.size() - body_read_;
  if (rest > 0) {
    parts[n++] = {body_.mutable_data() + body_read_, rest};
  }
  if (const auto room = reader_.room(); !room.empty())
    parts[n++] = {room.data(), room.size()};
  if (n == 0)
    return false; // The buffer is full of records that wait for listen().
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = n;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(max_descriptors * sizeof(int))> control;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EINTR)
    return true;
  const int error = got < 0 ? errno : 0;
  if (error == EAGAIN || error == EWOULDBLOCK)
    return options_.polls && rest > 0 && rest_arrives();
  if (got <= 0) {
    const std::string reason = got == 0 ? "its process ended or closed it" : text_of(error);
    {
      const std::lock_guard guard{mutex_};
      if (options_.resumes && !mistrusted_ && !broken_ && !settled()) {
        cut_ = true;
        ++cuts_;
        return false;
      }
    }
    std::map<std::uint64_t, payload> no_longer_read;
    std::deque<outgoing> not_sent;
    {
      const std::lock_guard guard{mutex_};
      broken_ = true;
      queue_.swap(not_sent);
      // Only the end of the stream and these errors prove that the peer no longer reads the memory
      // lent to it.
      if (got == 0 || error == ECONNRESET || error == EPIPE)
        lent_.swap(no_longer_read);
    }
    fail(reason);
    return false;
  }
  bytes += static_cast<std::uint64_t>(got);
  heard_ = now();
  take_descriptors(message);
  if (mistrusted_) {
    descriptors_.clear();
    return true;
  }
  const auto to_body = std::min(static_cast<std::size_t>(got), rest);
  if (meter_ && to_body > 0)
    meter_->count(to_body, heard_);
  body_read_ += to_body;
  reader_.add(static_cast<std::size_t>(got) - to_body);
  const sent_together answers{sent_together::kind::small};
  parse();
  return true;
}

void stream_channel::take_descriptors(msghdr& from) {
  for (auto* x = CMSG_FIRSTHDR(&from); x != nullptr; x = CMSG_NXTHDR(&from, x)) {
    if (x->cmsg_level != SOL_SOCKET || x->cmsg_type != SCM_RIGHTS)
      continue;
    const auto count = (x->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int value = -1;
      std::memcpy(&value, CMSG_DATA(x) + i * sizeof(int), sizeof value);
      descriptors_.emplace_back(value);
    }
  }
  if ((from.msg_flags & MSG_CTRUNC) != 0)
    mistrust("shared memory, but this process cannot open more files (`ulimit -n`)");
  else if (descriptors_.size() > max_descriptors)
    mistrust("more descriptors than it announced");
}

void stream_channel::parse() {
  while (!mistrusted_) {
    if (!body_.empty()) {
      if (body_read_ < body_.size())
        return;
      body_read_ = 0;
      deliver(std::exchange(body_, payload{}));
      count();
    }
    const bool listens = events_.received != nullptr;
    const record_limits allowed{!listens, !listens && !greeting_.token().empty(),
                                options_.limits.max_bytes};
    record_reader::record x;
    const auto found = reader_.next(allowed, x);
    if (found == record_reader::result::none)
      return;
    if (found == record_reader::result::misfit) {
      mistrust("a record that cannot be decoded");
      return;
    }
    if (x.body > 0 && !begin_body(x.body))
      return;
    on_record(x.kind, x.head);
    if (body_.empty()
        && (x.kind == proto::MESSAGE || x.kind == proto::RETURN || x.kind == proto::END))
      count();
    body_read_ = reader_.take({body_.mutable_data(), body_.size()});
    if (meter_ && body_read_ > 0)
      meter_->count(body_read_, heard_);
  }
}

bool stream_channel::begin_body(std::uint64_t bytes) {
  if (bytes > accepts_) {
    mistrust("a payload of " + std::to_string(bytes) + " bytes, and at most "
             + std::to_string(accepts_) + " are expected");
    return false;
  }
  try {
    body_ = payload::allocate(bytes);
    polled_ = {};
    return true;
  } catch (const std::bad_alloc&) {
    mistrust("a payload of " + std::to_string(bytes) + " bytes, but there is no memory for it");
    return false;
  }
}

void stream_channel::on_record(proto::RecordKind kind, std::span<const char> head) {
  const auto size = static_cast<int>(head.size());
  switch (kind) {
  case proto::MESSAGE:
    on_message(head);
    return;
  case proto::RETURN: {
    proto::Return x;
    if (x.ParseFromArray(head.data(), size)) {
      on_return(x);
      return;
    }
    break;
  }
  case proto::GREETING:
    if (greeting_.ParseFromArray(head.data(), size) && !greeting_.token().empty() && on_greeting())
      return;
    break;
  case proto::ACKNOWLEDGE: {
    proto::Acknowledge x;
    std::deque<outgoing> dropped;
    if (!x.ParseFromArray(head.data(), size))
      break;
    const std::lock_guard guard{mutex_};
    if (acknowledge(x.received(), dropped))
      return;
    break;
  }
  case proto::PING:
    return;
  case proto::END:
    fail(resumed() ? "it ended the link" : "it has given up this connection");
    return;
  default:
    break;
  }
  mistrust("a record that cannot be decoded");
}

/// Handles the first record on a connection: the peer's greeting. If this side has connected again,
/// the greeting is the peer's answer. Returns false if the greeting is impossible.
bool stream_channel::on_greeting() {
  if (!events_.received)
    return true;
  std::deque<outgoing> dropped;
  const std::lock_guard guard{mutex_};
  if (!acknowledge(greeting_.received(), dropped))
    return false;
  if (!std::exchange(holding_, false))
    return true;
  resend();
  flush();
  return true;
}

void stream_channel::count() {
  if (!options_.resumes)
    return;
  if (++received_ - acknowledged_ >= max_unacknowledged) {
    const std::lock_guard guard{mutex_};
    const auto before = queue_.size();
    push_news();
    write(before);
  }
  options_.wake();
}

void stream_channel::on_message(std::span<const char> head) {
  frame_.Clear();
  content_ = {};
  if (!decode(head)) {
    mistrust("a message that cannot be decoded");
    return;
  }
  if (frame_.has_loan())
    deliver(borrow(frame_.loan()));
  else if (body_.empty())
    deliver({});
}

bool stream_channel::decode(std::span<const char> head) {
  const auto content = split_message(head, !body_.empty(), frame_);
  if (!content)
    return false;
  try {
    caf::binary_deserializer source{sys_, content->data(), content->size()};
    if (source(content_))
      return false;
  } catch (const std::exception&) {
    return false; // The message contains impossible lengths.
  }
  if (frame_.packed() > 0 && (body_.empty() || frame_.packed() > accepts_ / sizeof(float)))
    return false;
  const bool wants_payload = frame_.has_loan() || !body_.empty();
  return !content_.empty() && (!wants_payload || has_payload(content_));
}

void stream_channel::deliver(payload body) {
  if (over_)
    return;
  if (frame_.packed() > 0) {
    try {
      auto values = unpack_floats(body, frame_.packed());
      if (!values) {
        mistrust("packed values that cannot be decoded");
        return;
      }
      body = std::move(*values);
    } catch (const std::bad_alloc&) {
      mistrust(std::to_string(frame_.packed()) + " packed values, but there is no memory for them");
      return;
    }
  }
  if (!body.empty())
    content_.get_mutable_as<payload>(content_.size() - 1) = std::move(body);
  events_.received(frame_, std::exchange(content_, caf::message{}));
}

/// Ends the channel, because the peer has broken the rules. From now on, everything that the peer
/// sends is ignored. If memory of this process is lent to the peer, the socket stays open until the
/// peer closes it. Otherwise the owner can close the socket at once.
void stream_channel::mistrust(const std::string& sent) {
  mistrusted_ = true;
  body_ = {};
  reader_.clear();
  body_read_ = 0;
  descriptors_.clear();
  std::deque<outgoing> not_sent;
  std::deque<outgoing> not_acknowledged;
  {
    const std::lock_guard guard{mutex_};
    if (lent_.empty()) {
      broken_ = true;
      queue_.swap(not_sent);
      sent_.swap(not_acknowledged);
    }
  }
  fail("it sent " + sent);
}

void stream_channel::fail(const std::string& reason) {
  if (std::exchange(over_, true))
    return;
  why_over_ = reason;
  if (events_.closed)
    events_.closed(reason);
}

} // namespace troupe
