#include "tests/actors/link/harming_proxy.hpp"

#include "actors/link/sockets.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe::test {

namespace {

/// Sends all bytes. This does not block for long, because the ends of a channel always read.
bool send_all(int socket, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0)
      return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

void make_blocking(const file_descriptor& socket) {
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
}

} // namespace

harming_proxy::harming_proxy(std::uint16_t to)
  : to_(to), listener_(listen_on("127.0.0.1", port_)), bell_(::eventfd(0, EFD_CLOEXEC)),
    thread_([this] { run(); }) {}

harming_proxy::~harming_proxy() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(bell_.get(), &one, sizeof one);
  thread_.join();
}

void harming_proxy::plan(harm how, std::uint64_t record, std::uint64_t bytes) {
  const std::lock_guard guard{mutex_};
  planned_ = true;
  how_ = how;
  record_ = record;
  bytes_ = bytes;
}

void harming_proxy::lose_records_above(std::uint64_t bytes) {
  const std::lock_guard guard{mutex_};
  largest_ = bytes;
}

bool harming_proxy::planned() const {
  const std::lock_guard guard{mutex_};
  return planned_;
}

void harming_proxy::run() {
  for (;;) {
    std::vector<pollfd> files{{bell_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (auto& x : connections_)
      for (auto& end : x.ends)
        files.push_back(
          {end.get(), static_cast<short>(x.stalled ? POLLRDHUP : POLLIN | POLLRDHUP), 0});
    ::poll(files.data(), files.size(), refuses_until_ ? 10 : -1);
    if (files[0].revents != 0)
      return;
    listen_again_if_due();
    std::size_t i = 2;
    for (auto x = connections_.begin(); x != connections_.end(); i += 2) {
      bool over = false;
      for (std::size_t k = 0; k < 2 && !over; ++k) {
        if (files[i + k].revents == 0)
          continue;
        if (!x->stalled)
          over = !pass_on(*x, x->ways[k]);
        else
          x->ends[k] = {}; // closes only this socket, so the other end notices nothing
      }
      over = over || (!x->ends[0] && !x->ends[1]);
      x = over ? connections_.erase(x) : std::next(x);
    }
    if (files[1].revents != 0)
      accept();
  }
}

void harming_proxy::listen_again_if_due() {
  if (!refuses_until_ || std::chrono::steady_clock::now() < *refuses_until_)
    return;
  refuses_until_.reset();
  listener_ = listen_on("127.0.0.1", port_);
}

void harming_proxy::accept() {
  connection x;
  std::string problem;
  x.ends[0] = accept_on(listener_.get(), problem);
  bool refused = false;
  x.ends[1] = connect_to("127.0.0.1", to_, std::chrono::seconds{5}, problem, refused);
  if (!x.ends[0] || !x.ends[1])
    return;
  for (std::size_t k = 0; k < 2; ++k) {
    make_blocking(x.ends[k]);
    x.ways[k].from = x.ends[k].get();
    x.ways[k].to = x.ends[1 - k].get();
  }
  connections_.push_back(std::move(x));
}

// Passes bytes on in one direction. Returns false if the connection is over.
bool harming_proxy::pass_on(connection& x, direction& way) {
  std::array<char, 8192> buffer{};
  const auto n = ::recv(way.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n <= 0)
    return false;
  if (way.dead)
    return true;
  const std::span bytes{buffer.data(), static_cast<std::size_t>(n)};
  std::optional<harm> due;
  const auto good = count(way, bytes, due);
  if (!send_all(way.to, bytes.first(good)))
    return false;
  return !due || harm_now(*due, x, way);
}

// Returns how many bytes may pass. If a harm follows them, sets `due`.
std::size_t harming_proxy::count(direction& way, std::span<const char> bytes,
                                 std::optional<harm>& due) {
  const std::lock_guard guard{mutex_};
  std::size_t good = 0;
  while (good < bytes.size()) {
    const bool last = planned_ && record_ == 0;
    auto step = std::min<std::uint64_t>(
      bytes.size() - good,
      way.head_seen < way.head.size() ? way.head.size() - way.head_seen : way.left);
    if (last)
      step = std::min(step, bytes_ - std::min(way.passed, bytes_));
    if (way.head_seen < way.head.size()) {
      std::memcpy(way.head.data() + way.head_seen, bytes.data() + good, step);
      way.head_seen += step;
      if (way.head_seen == way.head.size()) {
        std::uint32_t head = 0;
        std::memcpy(&head, way.head.data() + 4, sizeof head);
        std::memcpy(&way.left, way.head.data() + 8, sizeof way.left);
        way.left += head;
      }
    } else {
      way.left -= step;
    }
    way.passed += step;
    good += step;
    if (way.head_seen == way.head.size() && way.left > largest_) {
      due = harm::stall;
      return good;
    }
    const bool complete = way.head_seen == way.head.size() && way.left == 0;
    if (last && (complete || way.passed >= bytes_)) {
      planned_ = false;
      due = how_;
      return good;
    }
    if (complete) {
      way.head_seen = 0;
      way.passed = 0;
      if (planned_)
        --record_;
    }
  }
  return good;
}

bool harming_proxy::harm_now(harm how, connection& x, direction& way) {
  switch (how) {
  case harm::cut:
    return false;
  case harm::reset:
    for (auto& end : x.ends) {
      const linger none{1, 0};
      ::setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    }
    return false;
  case harm::half_close:
    ::shutdown(way.to, SHUT_WR);
    way.dead = true;
    return true;
  case harm::half_open:
    x.ends[&way == x.ways.data() ? 1 : 0] = {};
    x.stalled = true;
    return true;
  case harm::stall:
    x.stalled = true;
    return true;
  case harm::refuse:
    listener_ = {};
    refuses_until_ = std::chrono::steady_clock::now() + refusal;
    return false;
  case harm::refuse_for_good:
    listener_ = {};
    return false;
  }
  return false;
}

} // namespace troupe::test
