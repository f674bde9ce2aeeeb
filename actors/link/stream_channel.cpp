#include "actors/link/stream_channel.hpp"

#include "actors/link/sockets.hpp"
#include "messages/errors.hpp"

#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr std::size_t header_bytes = 16;
constexpr std::size_t max_head_bytes = std::size_t{16} << 20;
constexpr std::size_t max_greeting_bytes = 256;
constexpr std::size_t staging_bytes = std::size_t{64} << 10;
/// Largest number of descriptors that have arrived but are not used yet.
constexpr std::size_t max_descriptors = 64;
/// Number of reads in a row before other sockets have their turn.
constexpr int reads_in_a_row = 16;
/// Most records that one call writes.
constexpr std::size_t records_at_once = 8;
/// This number of records is acknowledged at once. Fewer wait until a message carries the
/// acknowledgement along, or for a tick.
constexpr std::uint64_t max_unacknowledged = 64;

template <class T>
void put(char* to, T x) {
  std::memcpy(to, &x, sizeof x);
}

template <class T>
T get(const char* from) {
  T result{};
  std::memcpy(&result, from, sizeof result);
  return result;
}

void put_header(std::vector<char>& record, proto::RecordKind kind, std::uint64_t body) {
  put(record.data(), static_cast<std::uint32_t>(kind));
  put(record.data() + 4, static_cast<std::uint32_t>(record.size() - header_bytes));
  put(record.data() + 8, body);
}

std::vector<char> record_of(proto::RecordKind kind, const google::protobuf::MessageLite& head) {
  std::vector<char> result(header_bytes + head.ByteSizeLong());
  head.SerializeWithCachedSizesToArray(
    reinterpret_cast<std::uint8_t*>(result.data() + header_bytes));
  put_header(result, kind, 0);
  return result;
}

std::vector<char> record_of(proto::RecordKind kind) {
  std::vector<char> result(header_bytes);
  put_header(result, kind, 0);
  return result;
}

/// A message has at most one payload, as its last element.
bool has_payload(const caf::message& x) {
  return !x.empty() && x.match_element<payload>(x.size() - 1);
}

std::string text_of(int error) {
  return std::generic_category().message(error);
}

/// The channels whose records wait on this thread.
struct waiting_channels {
  bool open = false;
  sent_together::kind what = sent_together::kind::all;
  std::vector<std::shared_ptr<stream_channel>> channels;
};

thread_local waiting_channels together;

} // namespace

sent_together::sent_together(kind what) noexcept : outermost_(!std::exchange(together.open, true)) {
  if (outermost_)
    together.what = what;
}

sent_together::~sent_together() {
  if (!outermost_)
    return;
  together.open = false;
  for (const auto& x : together.channels)
    x->release();
  together.channels.clear();
}

/// The peer's memory, until the last reference is gone.
std::string beyond_window(std::uint64_t window) {
  return "more than " + std::to_string(window >> 20) + " MiB wait for it, and it takes nothing";
}

class stream_channel::borrowed final : public buffer {
public:
  borrowed(std::shared_ptr<stream_channel> from, std::shared_ptr<const shared_memory> memory,
           std::uint64_t loan)
    : buffer(memory->data(), memory->size(), false), from_(std::move(from)),
      memory_(std::move(memory)), loan_(loan) {}

protected:
  void retire() noexcept override {
    const std::unique_ptr<borrowed> self{this};
    from_->give_back(loan_);
  }

private:
  std::shared_ptr<stream_channel> from_;
  std::shared_ptr<const shared_memory> memory_;
  std::uint64_t loan_;
};

stream_channel::stream_channel(caf::actor_system& sys, file_descriptor socket,
                               stream_options options)
  : sys_(sys), socket_(std::move(socket)), options_(std::move(options)), window_(options_.window),
    staged_(staging_bytes) {}

stream_channel::~stream_channel() = default;

stream_channel::clock::time_point stream_channel::now() const {
  return sys_.clock().now();
}

// -- sending ------------------------------------------------------------------------------------

caf::error stream_channel::send(proto::Frame frame, caf::message content) {
  payload body;
  if (has_payload(content) && content.get_as<payload>(content.size() - 1).size() >= large)
    body = std::exchange(content.get_mutable_as<payload>(content.size() - 1), payload{});
  // If other processes cannot read the payload's memory, it is copied once into shared memory.
  // Sending it would make the system copy it twice.
  if (options_.lends && !body.empty() && body.storage()->shared().number == 0) {
    auto copy = payload::allocate(body.size());
    if (copy.storage()->shared().number != 0) {
      std::ranges::copy(body.bytes(), copy.mutable_data());
      body = std::move(copy);
    }
  }
  std::vector<char> encoded;
  caf::binary_serializer sink{sys_, encoded};
  if (auto error = sink(content))
    return error;
  if (encoded.size() > max_head_bytes / 2)
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
  x.head.resize(header_bytes + 4 + frame_bytes);
  put(x.head.data() + header_bytes, static_cast<std::uint32_t>(frame_bytes));
  frame.SerializeWithCachedSizesToArray(
    reinterpret_cast<std::uint8_t*>(x.head.data() + header_bytes + 4));
  x.head.insert(x.head.end(), encoded.begin(), encoded.end());
  put_header(x.head, proto::MESSAGE, x.body.size());
  push_news();
  const bool is_large = x.loan != 0 || !x.body.empty();
  push(std::move(x));
  write(before, is_large);
  return caf::none;
}

// The thread that watches the socket ends the channel.
bool stream_channel::overflows(const payload& body, std::size_t head) {
  if (waiting_ == 0 || waiting_ + body.size() + head <= window_)
    return false;
  overflowed_ = true;
  options_.wake();
  return true;
}

void stream_channel::limit(std::uint64_t window) {
  const std::lock_guard guard{mutex_};
  window_ = window;
}

std::uint64_t stream_channel::waiting() const {
  const std::lock_guard guard{mutex_};
  return waiting_;
}

void stream_channel::lend(proto::Frame& frame, const payload& x, outgoing& out) {
  const auto file = x.storage()->shared();
  auto& loan = *frame.mutable_loan();
  loan.set_number(next_loan_++);
  loan.set_memory(file.number);
  loan.set_memory_bytes(x.storage()->capacity());
  loan.set_offset(x.offset());
  loan.set_bytes(x.size());
  if (std::ranges::find(known_, file.number) == known_.end()) {
    // First, the peer must close files that were freed in the meantime.
    const auto gone = buffer_pool::process().freed(known_);
    if (!gone.empty()) {
      proto::Return freed;
      for (const auto number : gone) {
        freed.add_freed(number);
        std::erase(known_, number);
      }
      push({record_of(proto::RETURN, freed), {}});
    }
    loan.set_first_time(true);
    out.descriptor = file.descriptor;
    known_.push_back(file.number);
  }
  lent_.emplace(loan.number(), x);
  waiting_ += x.size();
  out.lent = x;
  out.loan = loan.number();
}

void stream_channel::greet(const std::string& token, std::uint16_t port) {
  proto::Greeting x;
  x.set_token(token);
  x.set_port(port);
  const std::lock_guard guard{mutex_};
  push({record_of(proto::GREETING, x), {}, -1, {}, false});
  write(queue_.size() - 1);
}

void stream_channel::end() {
  {
    const std::lock_guard guard{mutex_};
    if (std::exchange(ended_, true))
      return;
    const auto before = queue_.size();
    push_news();
    push({record_of(proto::END), {}});
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
    push({record_of(proto::RETURN, back), {}});
  if (options_.resumes && received_ != acknowledged_) {
    proto::Acknowledge x;
    x.set_received(acknowledged_ = received_.load());
    push({record_of(proto::ACKNOWLEDGE, x), {}, -1, {}, false});
  }
}

// Called on any thread, when the last reference is gone.
void stream_channel::give_back(std::uint64_t loan) noexcept {
  {
    const std::lock_guard guard{returns_mutex_};
    --borrowed_;
    returns_.push_back(loan);
  }
  options_.wake();
}

bool stream_channel::keep_alive(std::chrono::nanoseconds suspect_after) {
  const auto time = now();
  const std::lock_guard guard{mutex_};
  if (suspect_after != suspicion_) {
    suspicion_ = suspect_after;
    suspicion_since_ = time;
    longest_suspicion_ = std::max(longest_suspicion_, suspect_after);
  } else if (time - suspicion_since_ > longest_suspicion_) {
    longest_suspicion_ = suspect_after;
  }
  if (broken_ || cut_)
    return true;
  if (time - said_ >= suspect_after / 4) {
    push({record_of(proto::PING), {}, -1, {}, false});
    write(queue_.size() - 1);
  }
  if (time - heard_.load() <= suspect_after)
    return true;
  // Data of the peer has arrived but has not been read yet.
  int waiting = 0;
  if (::ioctl(socket_.get(), FIONREAD, &waiting) == 0 && waiting > 0)
    return true;
  // The reading thread then notices the end.
  if (options_.resumes)
    ::shutdown(socket_.get(), SHUT_RDWR);
  return options_.resumes;
}

// Links look a few times while the time passes.
std::chrono::nanoseconds stream_channel::unnoticed_for() const {
  const std::lock_guard guard{mutex_};
  return longest_suspicion_ * 5 / 4;
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
      // A descriptor travels with the first byte of a call.
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
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    if (sent < 0) {
      // The reading thread also notices if the connection ended. Other errors, such as a lack of
      // memory, may be temporary.
      if (errno != EPIPE && errno != ECONNRESET)
        options_.wake();
      return;
    }
    said_ = now();
    written_ += static_cast<std::size_t>(sent);
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

void stream_channel::keep_loans() {
  static std::mutex mutex;
  static std::vector<payload> kept;
  const std::scoped_lock guard{mutex_, mutex};
  for (auto& x : lent_)
    kept.push_back(std::move(x.second));
  lent_.clear();
}

bool stream_channel::finished() const {
  const std::scoped_lock guard{mutex_, returns_mutex_};
  return (broken_ || settled()) && borrowed_ == 0;
}

// Both links have ended, and both sides know that the other one has received everything.
bool stream_channel::settled() const {
  return ended_ && over_ && queue_.empty() && lent_.empty() && sent_.empty()
    && (!options_.resumes || received_ == acknowledged_);
}

bool stream_channel::on_this_host() const {
  if (options_.lends)
    return true;
  const std::lock_guard guard{mutex_};
  return has_equal_ends(socket_.get());
}

int stream_channel::socket() const {
  const std::lock_guard guard{mutex_};
  return socket_.get();
}

// -- sockets that break -------------------------------------------------------------------------

bool stream_channel::cut() const {
  const std::lock_guard guard{mutex_};
  return cut_;
}

bool stream_channel::resumed() const {
  const std::lock_guard guard{mutex_};
  return !cut_ && !holding_;
}

file_descriptor stream_channel::release_socket() {
  const std::lock_guard guard{mutex_};
  if (!std::exchange(cut_, true))
    ++cuts_;
  return std::move(socket_);
}

void stream_channel::resume(file_descriptor socket, const proto::Greeting* greeting,
                            const std::string& token) {
  begin_ = end_ = body_read_ = 0;
  body_ = {};
  content_ = {};
  std::deque<outgoing> dropped;
  bool possible = true;
  {
    const std::lock_guard guard{mutex_};
    socket_ = std::move(socket);
    cut_ = false;
    heard_ = now();
    written_ = 0;
    std::erase_if(queue_, [this](auto& x) {
      if (!x.numbered)
        waiting_ -= x.bytes();
      return !x.numbered;
    });
    holding_ = greeting == nullptr;
    if (greeting != nullptr)
      possible = acknowledge(greeting->received(), dropped);
    resend();
    proto::Greeting x;
    x.set_token(token);
    x.set_received(acknowledged_ = received_.load());
    queue_.push_front({record_of(proto::GREETING, x), {}, -1, {}, false});
    waiting_ += queue_.front().bytes();
    flush();
  }
  if (end_overflow())
    return;
  if (!possible)
    mistrust("a number of records that it cannot have received");
}

bool stream_channel::acknowledge(std::uint64_t received, std::deque<outgoing>& dropped) {
  if (received < first_sent_ || received - first_sent_ > sent_.size())
    return false;
  for (; first_sent_ < received; ++first_sent_) {
    waiting_ -= sent_.front().bytes();
    dropped.push_back(std::move(sent_.front()));
    sent_.pop_front();
  }
  return true;
}

void stream_channel::resend() {
  if (holding_)
    return;
  queue_.insert(queue_.begin(), std::make_move_iterator(sent_.begin()),
                std::make_move_iterator(sent_.end()));
  sent_.clear();
}

void stream_channel::give_up(const std::string& reason) {
  std::deque<outgoing> not_sent;
  std::deque<outgoing> not_acknowledged;
  {
    const std::lock_guard guard{mutex_};
    broken_ = true;
    queue_.swap(not_sent);
    sent_.swap(not_acknowledged);
  }
  fail(reason);
}

// Too many bytes wait. Loans whose records are not written are released; the peer may still read
// the others.
bool stream_channel::end_overflow() {
  std::deque<outgoing> not_sent;
  std::deque<outgoing> not_acknowledged;
  std::uint64_t window = 0;
  {
    const std::lock_guard guard{mutex_};
    if (!overflowed_ || broken_)
      return false;
    broken_ = true;
    window = window_;
    for (std::size_t i = written_ > 0 ? 1 : 0; i < queue_.size(); ++i)
      lent_.erase(queue_[i].loan);
    queue_.swap(not_sent);
    sent_.swap(not_acknowledged);
  }
  keep_loans();
  fail(beyond_window(window));
  options_.wake(); // The socket can be closed.
  return true;
}

// -- receiving ----------------------------------------------------------------------------------

void stream_channel::listen(events to) {
  events_ = std::move(to);
  if (over_)
    events_.closed(why_over_);
  else
    parse();
}

bool stream_channel::on_readable() {
  for (int i = 0; i < reads_in_a_row; ++i)
    if (!read_some())
      return false;
  return true;
}

/// Returns true if there may be more data.
bool stream_channel::read_some() {
  std::array<iovec, 2> parts{};
  std::size_t n = 0;
  const auto rest = body_.size() - body_read_;
  if (rest > 0) {
    parts[n++] = {body_.mutable_data() + body_read_, rest};
  }
  if (end_ < staged_.size())
    parts[n++] = {staged_.data() + end_, staged_.size() - end_};
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
    return false;
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
      // This proves that the peer no longer reads its loans. Other errors do not prove it.
      if (got == 0 || error == ECONNRESET || error == EPIPE)
        lent_.swap(no_longer_read);
    }
    fail(reason);
    return false;
  }
  heard_ = now();
  take_descriptors(message);
  if (mistrusted_) {
    descriptors_.clear();
    return true;
  }
  const auto to_body = std::min(static_cast<std::size_t>(got), rest);
  body_read_ += to_body;
  end_ += static_cast<std::size_t>(got) - to_body;
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
    const auto there = end_ - begin_;
    std::size_t wanted = header_bytes;
    if (there >= header_bytes) {
      const char* at = staged_.data() + begin_;
      const auto kind = get<std::uint32_t>(at);
      const auto head = get<std::uint32_t>(at + 4);
      const auto body = get<std::uint64_t>(at + 8);
      if (!events_.received && !greeting_.token().empty())
        return; // Records after the greeting wait for listen().
      const bool fits = head <= (events_.received ? max_head_bytes : max_greeting_bytes)
        && body <= options_.max_bytes && (body == 0 || kind == proto::MESSAGE)
        && (events_.received || kind == proto::GREETING);
      if (!fits) {
        mistrust("a record that cannot be decoded");
        return;
      }
      wanted = header_bytes + head;
      if (there >= wanted) {
        begin_ += wanted;
        if (kind == proto::MESSAGE && body > 0) {
          try {
            body_ = payload::allocate(body);
          } catch (const std::bad_alloc&) {
            mistrust("a payload of " + std::to_string(body)
                     + " bytes, but there is no memory for it");
            return;
          }
        }
        on_record(static_cast<proto::RecordKind>(kind), {at + header_bytes, head});
        if (body_.empty()
            && (kind == proto::MESSAGE || kind == proto::RETURN || kind == proto::END))
          count();
        body_read_ = std::min<std::size_t>(body_.size(), end_ - begin_);
        if (body_read_ > 0)
          std::memcpy(body_.mutable_data(), staged_.data() + begin_, body_read_);
        begin_ += body_read_;
        continue;
      }
    }
    // Moves the remaining bytes to the beginning.
    std::memmove(staged_.data(), staged_.data() + begin_, there);
    begin_ = 0;
    end_ = there;
    if (staged_.size() < wanted)
      staged_.resize(wanted);
    return;
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

/// Handles the first record on a connection. If this side has connected again, this is the peer's
/// answer.
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
  if (head.size() < 4)
    return false;
  const auto frame_bytes = get<std::uint32_t>(head.data());
  const auto rest = head.size() - 4;
  if (frame_bytes > rest || !frame_.ParseFromArray(head.data() + 4, static_cast<int>(frame_bytes))
      || !proto::Frame::Kind_IsValid(frame_.kind()) || (frame_.has_loan() && !body_.empty()))
    return false;
  try {
    caf::binary_deserializer source{sys_, head.data() + 4 + frame_bytes, rest - frame_bytes};
    if (source(content_))
      return false;
  } catch (const std::exception&) {
    return false; // The message contains impossible lengths.
  }
  const bool wants_payload = frame_.has_loan() || !body_.empty();
  return !content_.empty() && (!wants_payload || has_payload(content_));
}

void stream_channel::deliver(payload body) {
  if (over_)
    return;
  if (!body.empty())
    content_.get_mutable_as<payload>(content_.size() - 1) = std::move(body);
  events_.received(frame_, std::exchange(content_, caf::message{}));
}

payload stream_channel::borrow(const proto::Loan& x) {
  if (x.first_time()) {
    std::shared_ptr<shared_memory> memory;
    const bool allowed = !descriptors_.empty() && !opened_.contains(x.memory())
      && x.memory_bytes() <= options_.max_bytes - opened_bytes_;
    if (allowed) {
      memory = std::make_shared<shared_memory>(
        shared_memory::open(descriptors_.front().release(), x.memory_bytes()));
      descriptors_.pop_front();
    }
    if (!memory || !*memory) {
      mistrust("memory that cannot be used");
      return {};
    }
    opened_bytes_ += x.memory_bytes();
    opened_.emplace(x.memory(), std::move(memory));
  }
  const auto i = opened_.find(x.memory());
  if (i == opened_.end() || x.bytes() == 0 || x.offset() > i->second->size()
      || x.bytes() > i->second->size() - x.offset()) {
    mistrust("a range of memory that it does not share");
    return {};
  }
  {
    const std::lock_guard guard{returns_mutex_};
    ++borrowed_;
  }
  return payload::adopt(new borrowed{shared_from_this(), i->second, x.number()}, x.offset(),
                        x.bytes());
}

void stream_channel::on_return(const proto::Return& x) {
  std::vector<payload> free;
  {
    const std::lock_guard guard{mutex_};
    for (const auto loan : x.loan())
      if (auto y = lent_.extract(loan)) {
        waiting_ -= y.mapped().size();
        free.push_back(std::move(y.mapped()));
      }
  }
  for (const auto number : x.freed())
    if (auto y = opened_.extract(number))
      opened_bytes_ -= y.mapped()->size();
}

/// From now on, everything is ignored up to the end of the socket.
void stream_channel::mistrust(const std::string& sent) {
  mistrusted_ = true;
  body_ = {};
  begin_ = end_ = body_read_ = 0;
  descriptors_.clear();
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
