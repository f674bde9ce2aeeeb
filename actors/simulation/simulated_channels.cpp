#include "actors/simulation/simulated_channels.hpp"

#include "actors/link/sockets.hpp"
#include "actors/simulation/simulated_channels_parts.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace troupe {

simulated_channels::simulated_channels(caf::actor_system& sys, simulated_network& network,
                                       std::uint64_t seed)
  : sys_(sys), network_(network), random_(seed, "channels"), epoll_(::epoll_create1(EPOLL_CLOEXEC)),
    buffer_(std::size_t{256} << 10) {
  if (!epoll_)
    fail_with("epoll");
}

simulated_channels::~simulated_channels() {
  clear();
}

std::shared_ptr<channel_maker> simulated_channels::add_node() {
  return nodes_.emplace_back(std::make_shared<node>(*this, nodes_.size()));
}

void simulated_channels::clear() {
  for (auto& x : nodes_)
    x->clear();
  for (auto& [key, x] : std::exchange(open_, {}))
    x->sides = {};
}

void simulated_channels::crash(sim_node which) {
  nodes_.at(which)->crash();
  for (const auto& [key, x] : std::map{open_})
    if (x->sides[key.second].node == which)
      close(x, key.second);
}

// -- connections --------------------------------------------------------------------------------

std::pair<simulated_channels::connection_ptr, file_descriptor>
simulated_channels::connect(sim_node from, sim_node to) {
  auto x = std::make_shared<connection>();
  x->number = connections_++;
  x->sides[0].node = from;
  x->sides[1].node = to;
  x->sides[1].channel = nodes_.at(to)->make_channel(open_end(x, 1));
  return {x, open_end(x, 0)};
}

file_descriptor simulated_channels::open_end(const connection_ptr& x, std::size_t end) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    fail_with("socketpair");
  x->sides[end].wire = file_descriptor{ends[0]};
  file_descriptor result{ends[1]};
  open_.emplace(std::pair{x->number, end}, x);
  watch(x, end);
  return result;
}

void simulated_channels::watch(const connection_ptr& x, std::size_t end) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = x->number << 1 | end;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, x->sides[end].wire.get(), &event) != 0)
    fail_with("epoll");
}

// Bytes of this side have arrived, so its waiting bytes can be sent.
void simulated_channels::landed(const connection_ptr& x, std::size_t end, std::size_t bytes) {
  auto& side = x->sides[end];
  side.in_transit -= bytes;
  if (std::exchange(side.waits, false) && side.wire)
    watch(x, end);
}

void simulated_channels::pump() {
  std::array<epoll_event, 32> events{};
  for (;;) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (n <= 0)
      return;
    // Sort the events, because the order in which the system reports them may differ from run to
    // run.
    std::sort(events.begin(), events.begin() + n,
              [](auto& a, auto& b) { return a.data.u64 < b.data.u64; });
    for (int i = 0; i < n; ++i)
      if (const auto x = open_.find({events[i].data.u64 >> 1, events[i].data.u64 & 1});
          x != open_.end())
        drain(connection_ptr{x->second}, x->first.second);
  }
}

void simulated_channels::drain(const connection_ptr& x, std::size_t end) {
  auto& side = x->sides[end];
  for (;;) {
    const auto room = network_.in_transit() - side.in_transit;
    if (room == 0 && !x->broken) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, side.wire.get(), nullptr);
      side.waits = true;
      return;
    }
    const auto most = x->broken ? buffer_.size() : std::min(room, buffer_.size());
    const auto n = ::recv(side.wire.get(), buffer_.data(), most, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    if (n <= 0)
      break;
    send(x, end, {buffer_.data(), static_cast<std::size_t>(n)});
    if (side.channel)
      side.channel->on_writable();
  }
  // The channel may have shut down its socket without closing it. So let the channel read the end
  // of the connection from this socket.
  auto& home = *nodes_[side.node];
  home.post(sys_.clock().now(), [&home, channel = side.channel] {
    if (channel)
      home.attend(channel);
  });
  close(x, end);
}

// Closes one end of a connection. The peer reads everything that was sent before, and then the end
// of the connection.
void simulated_channels::close(const connection_ptr& x, std::size_t end) {
  auto& side = x->sides[end];
  open_.erase({x->number, end});
  side.wire = {};
  side.channel = nullptr;
  if (std::exchange(x->broken, true))
    return;
  hang_up_later(x, 1 - end);
}

void simulated_channels::hang_up_later(const connection_ptr& x, std::size_t end) {
  const auto to = x->sides[end].node;
  if (const auto when = network_.carry(x->sides[1 - end].node, to, {}))
    nodes_[to]->post(*when, [this, x, end] { hang_up(x, end); });
}

void simulated_channels::hang_up(const connection_ptr& x, std::size_t end) {
  auto& side = x->sides[end];
  if (!side.wire)
    return;
  open_.erase({x->number, end});
  side.wire = {};
  if (side.channel)
    nodes_[side.node]->read(x, end);
  side.channel = nullptr;
}

// -- records ------------------------------------------------------------------------------------

void simulated_channels::send(const connection_ptr& x, std::size_t end,
                              std::span<const char> bytes) {
  std::optional<breakage> due;
  if (x->broken)
    return;
  const auto good = bytes.first(count(*x, end, bytes, due));
  const auto to = x->sides[1 - end].node;
  const auto when = network_.carry(x->sides[end].node, to, good);
  if (!when) {
    x->broken = true; // Without these bytes, the peer cannot read later bytes.
    return;
  }
  x->sides[end].in_transit += good.size();
  nodes_[to]->post(*when, [this, x, end, arrived = std::vector(good.begin(), good.end())] {
    landed(x, end, arrived.size());
    if (!x->lost)
      arrive(x, 1 - end, arrived);
  });
  if (due)
    break_now(x, end, *due);
}

/// Finds the records in the bytes that a side sends. For each record, asks the test (`judge_`)
/// whether the connection breaks. Returns how many of these bytes arrive. Sets `due` if the
/// connection breaks after them.
std::size_t simulated_channels::count(connection& x, std::size_t end, std::span<const char> bytes,
                                      std::optional<breakage>& due) {
  auto& side = x.sides[end];
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto left = bytes.size() - done;
    if (side.seen < connection::header_bytes) {
      const auto before = side.seen;
      const auto n = std::min<std::uint64_t>(left, connection::header_bytes - before);
      std::memcpy(side.head.data() + side.seen, bytes.data() + done, n);
      side.seen += n;
      done += n;
      if (side.seen < connection::header_bytes)
        break;
      std::uint32_t kind = 0;
      std::uint32_t head = 0;
      std::uint64_t body = 0;
      std::memcpy(&kind, side.head.data(), sizeof kind);
      std::memcpy(&head, side.head.data() + 4, sizeof head);
      std::memcpy(&body, side.head.data() + 8, sizeof body);
      side.size = connection::header_bytes + head + body;
      ++records_;
      if (judge_)
        side.fate = judge_(side.node, x.sides[1 - end].node, static_cast<proto::RecordKind>(kind));
      if (side.fate && side.fate->bytes <= connection::header_bytes) {
        due = side.fate->how;
        return done - n + std::max(before, side.fate->bytes) - before;
      }
    } else {
      const auto limit = side.fate ? std::min(side.size, side.fate->bytes) : side.size;
      const auto n = std::min<std::uint64_t>(left, limit - side.seen);
      side.seen += n;
      done += n;
    }
    const auto limit = side.fate ? std::min(side.size, side.fate->bytes) : side.size;
    if (side.seen < limit)
      continue;
    if (side.fate) {
      due = side.fate->how;
      return done;
    }
    side.seen = 0;
  }
  return done;
}

void simulated_channels::break_now(const connection_ptr& x, std::size_t end, breakage how) {
  ++broken_;
  x->broken = true;
  x->lost = how == breakage::reset;
  if (how == breakage::cut || how == breakage::reset)
    hang_up_later(x, end);
  if (how != breakage::stall)
    hang_up_later(x, 1 - end);
}

void simulated_channels::arrive(const connection_ptr& x, std::size_t end,
                                std::span<const char> bytes) {
  auto& side = x->sides[end];
  while (!bytes.empty() && side.wire) {
    const auto n = ::send(side.wire.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
      return; // The channel has closed its socket. pump() handles this.
    if (n < 0)
      fail_with("a simulated channel does not read");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    if (side.channel)
      nodes_[side.node]->read(x, end);
  }
}

} // namespace troupe
