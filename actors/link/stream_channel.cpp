#include "actors/link/stream_channel.hpp"

#include "actors/link/sockets.hpp"
#include "actors/link/stream_records.hpp"
#include "messages/errors.hpp"
#include "messages/packed_floats.hpp"

#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>
#include <caf/binary_serializer.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <sys/uio.h>

namespace troupe {

namespace {

constexpr std::size_t staging_bytes = std::size_t{64} << 10;
/// Largest number of records that one system call writes.
constexpr std::size_t records_at_once = 8;

/// The state of this thread's sent_together objects, and the channels whose records wait for the
/// destructor of such an object.
struct waiting_channels {
  bool open = false;
  sent_together::kind what = sent_together::kind::all;
  /// The object of kind `all` inside an object of kind `small`; null if there is none.
  const sent_together* inner = nullptr;
  std::vector<std::shared_ptr<stream_channel>> channels;
};

thread_local waiting_channels together;

} // namespace

sent_together::sent_together(kind what) noexcept : outermost_(!std::exchange(together.open, true)) {
  if (outermost_) {
    together.what = what;
  } else if (what == kind::all && together.what == kind::small) {
    together.what = what;
    together.inner = this;
  }
}

sent_together::~sent_together() {
  if (together.inner == this) {
    together.inner = nullptr;
    together.what = kind::small;
  } else if (outermost_) {
    together.open = false;
  } else {
    return;
  }
  send_now();
}

void sent_together::send_now() {
  for (const auto& x : std::exchange(together.channels, {}))
    x->release();
}

bool has_payload(const caf::message& x) {
  return !x.empty() && x.match_element<payload>(x.size() - 1);
}

stream_channel::stream_channel(caf::actor_system& sys, file_descriptor socket,
                               stream_options options)
  : sys_(sys), socket_(std::move(socket)), options_(std::move(options)),
    same_host_(options_.lends || has_equal_ends(socket_.get())), limits_(options_.limits),
    accepts_(limits_.max_bytes), reader_(staging_bytes) {}

stream_channel::~stream_channel() = default;

stream_channel::clock::time_point stream_channel::now() const {
  return sys_.clock().now();
}

// -- sending ------------------------------------------------------------------------------------

caf::error stream_channel::send(proto::Frame frame, caf::message content) {
  payload body;
  if (has_payload(content) && content.get_as<payload>(content.size() - 1).size() >= large)
    body = std::exchange(content.get_mutable_as<payload>(content.size() - 1), payload{});
  // If the peer cannot read the payload's memory, copy the payload once into shared memory. If it
  // were sent instead, the system would copy it twice.
  if (options_.lends && !body.empty() && body.storage()->shared().number == 0) {
    auto copy = payload::allocate(body.size());
    if (copy.storage()->shared().number != 0) {
      std::ranges::copy(body.bytes(), copy.mutable_data());
      body = std::move(copy);
    }
  }
  if (!options_.lends && body.is_rounded())
    if (auto packed = pack_floats(body.as_floats()); !packed.empty()) {
      frame.set_packed(body.as_floats().size());
      body = std::move(packed);
    }
  std::vector<char> encoded;
  caf::binary_serializer sink{sys_, encoded};
  if (auto error = sink(content))
    return error;
  if (encoded.size() > records::max_head_bytes / 2)
    return make_error(errc::malformed,
                      "a message of " + std::to_string(encoded.size()) + " bytes is too long");
  outgoing x;
  const std::lock_guard guard{mutex_};
  if (broken_ || ended_ || overflowed_ || overflows(body, encoded.size()))
    return caf::none;
  const auto before = queue_.size();
  if (options_.lends && !body.empty() && body.storage()->shared().number != 0)
    lend(frame, body, x);
  else
    x.body = std::move(body);
  const auto frame_bytes = frame.ByteSizeLong();
  x.head.resize(records::header_bytes + 4 + frame_bytes);
  records::put(x.head.data() + records::header_bytes, static_cast<std::uint32_t>(frame_bytes));
  frame.SerializeWithCachedSizesToArray(
    reinterpret_cast<std::uint8_t*>(x.head.data() + records::header_bytes + 4));
  x.head.insert(x.head.end(), encoded.begin(), encoded.end());
  records::put_header(x.head, proto::MESSAGE, x.body.size());
  push_news();
  const bool is_large = x.loan != 0 || !x.body.empty();
  push(std::move(x));
  write(before, is_large);
  return caf::none;
}

// Tests whether too many bytes would wait for the peer with this message. If so, returns true, and
// makes the thread that watches the socket end the channel (end_overflow).
bool stream_channel::overflows(const payload& body, std::size_t head) {
  if (waiting_ == 0 || waiting_ + body.size() + head <= limits_.window)
    return false;
  overflowed_ = true;
  options_.wake();
  return true;
}

void stream_channel::limit(const channel_limits& x) {
  const std::lock_guard guard{mutex_};
  const auto before = limits_.grace;
  limits_ = x;
  if (!x.grace)
    limits_.grace = before;
  accepts_ = x.max_bytes;
}

std::chrono::milliseconds stream_channel::grace() const {
  const std::lock_guard guard{mutex_};
  return limits_.grace.value_or(std::chrono::milliseconds{0});
}

std::uint64_t stream_channel::waiting() const {
  const std::lock_guard guard{mutex_};
  return waiting_;
}

void stream_channel::greet(const std::string& token, std::uint16_t port) {
  proto::Greeting x;
  x.set_token(token);
  x.set_port(port);
  const std::lock_guard guard{mutex_};
  push({records::make(proto::GREETING, x), {}, -1, {}, false});
  write(queue_.size() - 1);
}

void stream_channel::end() {
  {
    const std::lock_guard guard{mutex_};
    if (std::exchange(ended_, true))
      return;
    const auto before = queue_.size();
    push_news();
    push({records::make(proto::END), {}});
    write(before);
  }
  options_.wake();
}

void stream_channel::push(outgoing x) {
  waiting_ += x.bytes();
  queue_.push_back(std::move(x));
}

void stream_channel::write(std::size_t before, bool large) {
  if (before > 0 && !held_)
    return; // Earlier records are still waiting for the socket.
  if (!together.open || (large && together.what == sent_together::kind::small)) {
    flush();
    return;
  }
  held_ = true;
  auto& held = together.channels;
  if (std::ranges::none_of(held, [this](auto& x) { return x.get() == this; }))
    held.push_back(shared_from_this());
}

void stream_channel::release() {
  const std::lock_guard guard{mutex_};
  if (held_)
    flush();
}

void stream_channel::push_news() {
  proto::Return back;
  {
    const std::lock_guard guard{returns_mutex_};
    for (const auto loan : returns_)
      back.add_loan(loan);
    returns_.clear();
  }
  if (back.loan_size() > 0)
    push({records::make(proto::RETURN, back), {}});
  if (options_.resumes && received_ != acknowledged_) {
    proto::Acknowledge x;
    x.set_received(acknowledged_ = received_.load());
    push({records::make(proto::ACKNOWLEDGE, x), {}, -1, {}, false});
  }
}

void stream_channel::flush() {
  held_ = false;
  while (!queue_.empty() && !broken_ && !cut_) {
    std::array<iovec, 2 * records_at_once> parts{};
    std::size_t n = 0;
    auto skipped = written_;
    const auto add = [&](auto* bytes, std::size_t size) {
      const auto skip = std::min(skipped, size);
      if (skip < size)
        parts[n++] = {bytes + skip, size - skip};
      skipped -= skip;
    };
    const auto count = std::min(queue_.size(), records_at_once);
    for (std::size_t i = 0; i < count; ++i) {
      auto& x = queue_[i];
      // A descriptor travels with the first byte of a system call. So a record with a descriptor
      // must be the first record of a call.
      if ((holding_ && x.numbered) || (i > 0 && x.descriptor >= 0))
        break;
      add(x.head.data(), x.head.size());
      add(const_cast<std::byte*>(x.body.data()), x.body.size());
    }
    if (n == 0)
      return;
    const auto& x = queue_.front();
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = n;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (x.descriptor >= 0 && written_ == 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      auto* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &x.descriptor, sizeof(int));
    }
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (options_.full)
        options_.full(socket_.get());
      return;
    }
    if (sent < 0) {
      // If the connection has ended, the reading thread notices it. Other errors, such as a lack of
      // memory, may be temporary, so the next tick tries again.
      if (errno != EPIPE && errno != ECONNRESET)
        options_.wake();
      return;
    }
    said_ = now();
    if (meter_ && !x.body.empty())
      meter_->count(static_cast<std::uint64_t>(sent), said_);
    written_ += static_cast<std::size_t>(sent);
    written_to_socket_ += static_cast<std::uint64_t>(sent);
    while (!queue_.empty() && written_ >= queue_.front().bytes()) {
      auto& done = queue_.front();
      written_ -= done.bytes();
      if (options_.resumes && done.numbered)
        sent_.push_back(std::move(done));
      else
        waiting_ -= done.bytes();
      queue_.pop_front();
    }
  }
}

void stream_channel::on_writable() {
  const std::lock_guard guard{mutex_};
  flush();
  if (queue_.empty() && options_.empty)
    options_.empty(socket_.get());
}

void stream_channel::on_tick() {
  if (end_overflow())
    return;
  const std::lock_guard guard{mutex_};
  if (broken_)
    return;
  push_news();
  flush();
}

bool stream_channel::idle(bool settled) const {
  const std::lock_guard guard{mutex_};
  if (broken_)
    return true;
  if (cut_)
    return over_;
  return queue_.empty() && (!settled || (sent_.empty() && lent_.empty()));
}

bool stream_channel::finished() const {
  const std::scoped_lock guard{mutex_, returns_mutex_};
  return (broken_ || settled()) && borrowed_ == 0;
}

// True if both links have ended, and each side knows that the other side has received everything.
bool stream_channel::settled() const {
  return ended_ && over_ && queue_.empty() && lent_.empty() && sent_.empty()
    && (!options_.resumes || received_ == acknowledged_);
}

int stream_channel::socket() const {
  const std::lock_guard guard{mutex_};
  return socket_.get();
}

} // namespace troupe
