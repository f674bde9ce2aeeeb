#include "actors/simulation/simulated_channels.hpp"

#include "actors/link/channel_host.hpp"
#include "actors/link/sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace troupe {

namespace {

/// Something that the thread of a channel_host would do.
struct channel_task {
  std::function<void()> run;
};

/// As in channel_host.
constexpr std::chrono::milliseconds tick{1};
constexpr std::chrono::milliseconds first_wait{20};
constexpr std::chrono::milliseconds longest_wait{500};

constexpr std::size_t header_bytes = 16;

} // namespace

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::channel_task)

namespace troupe {

struct simulated_channels::connection {
  struct side {
    sim_node node = 0;
    /// The other end of the channel's socket. Empty if the connection has ended here.
    file_descriptor wire;
    /// Null once no channel uses the connection.
    channel_ptr channel;
    /// The record that this side is sending.
    std::array<char, header_bytes> head{};
    std::uint64_t seen = 0;
    std::uint64_t size = 0;
    std::optional<record_fate> fate;
  };

  std::uint64_t number = 0;
  /// The one that has connected, and the one that has accepted.
  std::array<side, 2> sides;
  /// What is sent from now on is lost.
  bool broken = false;
  /// What is on its way is lost, too.
  bool lost = false;
};

class simulated_channels::reader final : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  const char* name() const override { return "troupe.channels"; }

protected:
  caf::behavior make_behavior() override {
    return {[](const channel_task& x) { x.run(); }};
  }
};

/// Does what channel_host does.
class simulated_channels::node final : public channel_maker,
                                       public std::enable_shared_from_this<node> {
public:
  node(simulated_channels& all, sim_node number)
    : all_(all), number_(number), reader_(all.sys_.spawn<reader>()) {}

  proto::ChannelOffer offer(on_channel then) override {
    proto::ChannelOffer result;
    result.set_port(port());
    result.set_token(std::to_string(number_) + '.' + std::to_string(++offers_));
    expected_.emplace(result.token(), std::move(then));
    return result;
  }

  void withdraw(const proto::ChannelOffer& offer) override { expected_.erase(offer.token()); }

  void connect(const proto::ChannelOffer& offer, const std::string&, on_channel then) override {
    const sim_node peer = offer.port() - 1;
    post(now() + 2 * all_.network_.latency(),
         [this, peer, token = offer.token(), then = std::move(then)] {
           if (!can_connect(peer)) {
             then(nullptr, "no route");
             return;
           }
           auto [connection, socket] = all_.connect(number_, peer);
           auto channel = make_channel(std::move(socket));
           connection->sides[0].channel = channel;
           channel->greet(token, port());
           routes_[channel] = {token, peer, true};
           channels_.push_back(channel);
           then(channel, {});
         });
  }

  /// Calls a function on this node's thread. It is not called after clear(), or if the node
  /// crashes.
  void post(time_point when, std::function<void()> task) {
    if (ended_)
      return;
    channel_task x{[self = weak_from_this(), task = std::move(task)] {
      if (const auto still = self.lock(); still && !still->ended_)
        task();
    }};
    all_.sys_.clock().schedule_message(
      when, caf::actor_cast<caf::strong_actor_ptr>(reader_),
      caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::move(x)));
  }

  bool crashed() const noexcept { return crashed_; }

  void crash() {
    crashed_ = true;
    clear();
  }

  void clear() {
    ended_ = true;
    expected_.clear();
    channels_.clear();
    routes_.clear();
    if (reader_)
      caf::anon_send_exit(reader_, caf::exit_reason::user_shutdown);
    reader_ = nullptr;
  }

  channel_ptr make_channel(file_descriptor socket) {
    stream_options how;
    how.resumes = true;
    how.wake = [self = weak_from_this()] {
      if (const auto x = self.lock())
        x->wake();
    };
    return std::make_shared<stream_channel>(all_.sys_, std::move(socket), std::move(how));
  }

  /// Reads what has arrived for the channel that uses the connection.
  void read(const connection_ptr& x, std::size_t end) {
    auto& channel = x->sides[end].channel;
    const bool known = std::ranges::find(channels_, channel) != channels_.end();
    if (!known && !identify(channel, x->sides[1 - end].node))
      return;
    // A copy, because the connection may lose the channel meanwhile.
    attend(channel_ptr{channel});
  }

  /// Reads data, or the end of the connection.
  void attend(const channel_ptr& channel) {
    if (channel->socket() < 0)
      return;
    while (channel->on_readable())
      ;
    if (channel->cut()) {
      on_cut(channel);
      return;
    }
    if (const auto x = routes_.find(channel); x != routes_.end() && channel->resumed())
      x->second.give_up = {};
    forget_if_finished(channel);
  }

private:
  /// See channel_host::route.
  struct route {
    std::string token;
    sim_node peer = 0;
    bool ours = false;
    time_point give_up = {};
  };

  std::uint16_t port() const noexcept { return static_cast<std::uint16_t>(number_ + 1); }

  time_point now() const { return all_.sys_.clock().now(); }

  bool can_connect(sim_node peer) const {
    return !all_.nodes_[peer]->crashed() && all_.network_.connected(number_, peer);
  }

  void wake() {
    if (std::exchange(ticking_, true))
      return;
    post(now() + tick, [this] {
      ticking_ = false;
      for (const auto& x : std::vector{channels_}) {
        x->on_tick();
        forget_if_finished(x);
      }
    });
  }

  /// Reads the greeting of a connection that has come in. Returns false if its channel is not
  /// known yet, or never will be.
  bool identify(channel_ptr& stranger, sim_node peer) {
    if (stranger->socket() < 0)
      return false;
    stranger->on_readable();
    const auto greeting = stranger->greeting();
    if (greeting.token().empty())
      return false;
    if (auto x = expected_.extract(greeting.token())) {
      stranger->greet(greeting.token(), 0);
      routes_[stranger] = {greeting.token(), peer};
      channels_.push_back(stranger);
      x.mapped()(stranger, {});
      return true;
    }
    const auto known = std::ranges::find_if(
      routes_, [&](auto& x) { return !x.second.ours && x.second.token == greeting.token(); });
    if (known == routes_.end()) {
      stranger->end();
      stranger = nullptr;
      return false;
    }
    const auto mine = known->first;
    drop(mine); // Perhaps the connection broke, and this side has not noticed yet.
    resume(mine, stranger->release_socket(), &greeting);
    stranger = mine;
    return true;
  }

  void forget_if_finished(const channel_ptr& channel) {
    if (!channel->finished())
      return;
    routes_.erase(channel);
    drop(channel);
  }

  void drop(const channel_ptr& channel) {
    std::erase(channels_, channel);
    channel->release_socket();
  }

  void resume(const channel_ptr& channel, file_descriptor socket, const proto::Greeting* greeting) {
    channels_.push_back(channel);
    channel->resume(std::move(socket), greeting, routes_.at(channel).token);
  }

  void on_cut(const channel_ptr& channel) {
    drop(channel);
    const auto x = routes_.find(channel);
    if (x == routes_.end())
      return;
    auto& where = x->second;
    if (where.give_up == time_point{})
      where.give_up = now() + channel_host_options{}.grace;
    if (where.ours)
      connect_again_later(channel, channel->cuts(), first_wait);
    else if (all_.nodes_[where.peer]->crashed())
      give_up_later(channel, now() + 2 * all_.network_.latency(), "its process has ended");
    else if (can_connect(where.peer))
      give_up_later(channel, where.give_up + channel->unnoticed_for(),
                    "it runs, but did not come back");
    else
      give_up_later(channel, where.give_up, "it did not come back in time");
  }

  void give_up_later(const channel_ptr& channel, time_point when, const std::string& reason) {
    post(when, [this, channel, cuts = channel->cuts(), reason] {
      if (!channel->cut() || channel->cuts() != cuts)
        return;
      routes_.erase(channel);
      channel->give_up(reason);
    });
  }

  void connect_again_later(const channel_ptr& channel, std::uint64_t cuts,
                           std::chrono::milliseconds wait) {
    const auto jitter = all_.random_.below(static_cast<std::uint64_t>(wait.count()));
    const auto pause = wait / 2 + std::chrono::milliseconds{jitter};
    post(now() + pause + 2 * all_.network_.latency(), [this, channel, cuts, wait] {
      const auto x = routes_.find(channel);
      if (x == routes_.end() || !channel->cut() || channel->cuts() != cuts)
        return;
      const auto peer = x->second.peer;
      if (all_.nodes_[peer]->crashed()) {
        give_up_later(channel, now(), "its process has ended");
      } else if (now() >= x->second.give_up) {
        give_up_later(channel, now(), "it did not answer");
      } else if (!can_connect(peer)) {
        connect_again_later(channel, cuts, std::min(2 * wait, longest_wait));
      } else {
        auto [connection, socket] = all_.connect(number_, peer);
        connection->sides[0].channel = channel;
        resume(channel, std::move(socket), nullptr);
      }
    });
  }

  simulated_channels& all_;
  sim_node number_;
  caf::actor reader_;
  std::uint64_t offers_ = 0;
  std::map<std::string, on_channel> expected_;
  /// Channels with a connection, except those whose greeting has not arrived.
  std::vector<channel_ptr> channels_;
  std::map<channel_ptr, route> routes_;
  bool ticking_ = false;
  bool crashed_ = false;
  bool ended_ = false;
};

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
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = x->number << 1 | end;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, ends[0], &event) != 0)
    fail_with("epoll");
  return result;
}

void simulated_channels::pump() {
  std::array<epoll_event, 32> events{};
  for (;;) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (n <= 0)
      return;
    // Not in the order of the system.
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
    const auto n = ::recv(side.wire.get(), buffer_.data(), buffer_.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return;
    if (n <= 0)
      break;
    send(x, end, {buffer_.data(), static_cast<std::size_t>(n)});
    if (side.channel)
      side.channel->on_writable();
  }
  // If the channel has only shut the socket down, it has yet to see the end.
  auto& home = *nodes_[side.node];
  home.post(sys_.clock().now(), [&home, channel = side.channel] {
    if (channel)
      home.attend(channel);
  });
  close(x, end);
}

// What is sent arrives before the end.
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
    x->broken = true; // Without these bytes, later ones cannot be read.
    return;
  }
  nodes_[to]->post(*when, [this, x, end, arrived = std::vector(good.begin(), good.end())] {
    if (!x->lost)
      arrive(x, 1 - end, arrived);
  });
  if (due)
    break_now(x, end, *due);
}

/// Returns how many bytes arrive. If the connection breaks after them, sets `due`.
std::size_t simulated_channels::count(connection& x, std::size_t end, std::span<const char> bytes,
                                      std::optional<breakage>& due) {
  auto& side = x.sides[end];
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto left = bytes.size() - done;
    if (side.seen < header_bytes) {
      const auto before = side.seen;
      const auto n = std::min<std::uint64_t>(left, header_bytes - before);
      std::memcpy(side.head.data() + side.seen, bytes.data() + done, n);
      side.seen += n;
      done += n;
      if (side.seen < header_bytes)
        break;
      std::uint32_t kind = 0;
      std::uint32_t head = 0;
      std::uint64_t body = 0;
      std::memcpy(&kind, side.head.data(), sizeof kind);
      std::memcpy(&head, side.head.data() + 4, sizeof head);
      std::memcpy(&body, side.head.data() + 8, sizeof body);
      side.size = header_bytes + head + body;
      ++records_;
      if (judge_)
        side.fate = judge_(side.node, x.sides[1 - end].node, static_cast<proto::RecordKind>(kind));
      if (side.fate && side.fate->bytes <= header_bytes) {
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
      return; // The channel has closed it, and pump() has yet to see that.
    if (n < 0)
      fail_with("a simulated channel does not read");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    if (side.channel)
      nodes_[side.node]->read(x, end);
  }
}

} // namespace troupe
