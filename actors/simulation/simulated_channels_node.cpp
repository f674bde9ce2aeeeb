#include "actors/link/channel_host.hpp"
#include "actors/simulation/simulated_channels_parts.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// A function that the thread of a channel_host would call.
struct channel_task {
  std::function<void()> run;
};

// The same times as in channel_host.
constexpr std::chrono::milliseconds news_after{1};
constexpr std::chrono::milliseconds first_wait{20};
constexpr std::chrono::milliseconds longest_wait{500};

/// The actor "troupe.channels": calls the functions that the thread of a channel_host would call.
class channel_reader final : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  const char* name() const override { return "troupe.channels"; }

protected:
  caf::behavior make_behavior() override;
};

} // namespace

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::channel_task)

namespace troupe {

caf::behavior channel_reader::make_behavior() {
  return {[](const channel_task& x) { x.run(); }};
}

simulated_channels::node::node(simulated_channels& all, sim_node number)
  : all_(all), number_(number), reader_(all.sys_.spawn<channel_reader>()) {}

proto::ChannelOffer simulated_channels::node::offer(on_channel then) {
  proto::ChannelOffer result;
  result.set_port(port());
  result.set_token(std::to_string(number_) + '.' + std::to_string(++offers_));
  expected_.emplace(result.token(), std::move(then));
  return result;
}

void simulated_channels::node::withdraw(const proto::ChannelOffer& offer) {
  expected_.erase(offer.token());
}

void simulated_channels::node::connect(const proto::ChannelOffer& offer, const std::string&,
                                       on_channel then) {
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

void simulated_channels::node::post(time_point when, std::function<void()> task) {
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

void simulated_channels::node::crash() {
  crashed_ = true;
  clear();
}

void simulated_channels::node::clear() {
  ended_ = true;
  expected_.clear();
  channels_.clear();
  routes_.clear();
  if (reader_)
    caf::anon_send_exit(reader_, caf::exit_reason::user_shutdown);
  reader_ = nullptr;
}

simulated_channels::channel_ptr simulated_channels::node::make_channel(file_descriptor socket) {
  stream_options how;
  how.resumes = true;
  how.wake = [self = weak_from_this()] {
    if (const auto x = self.lock())
      x->wake();
  };
  return std::make_shared<stream_channel>(all_.sys_, std::move(socket), std::move(how));
}

void simulated_channels::node::read(const connection_ptr& x, std::size_t end) {
  auto& channel = x->sides[end].channel;
  const bool known = std::ranges::find(channels_, channel) != channels_.end();
  if (!known && !identify(channel, x->sides[1 - end].node))
    return;
  // Pass a copy of the pointer, because attend() may make the connection drop its own pointer.
  attend(channel_ptr{channel});
}

void simulated_channels::node::attend(const channel_ptr& channel) {
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

simulated_channels::time_point simulated_channels::node::now() const {
  return all_.sys_.clock().now();
}

bool simulated_channels::node::can_connect(sim_node peer) const {
  return !all_.nodes_[peer]->crashed() && all_.network_.connected(number_, peer);
}

void simulated_channels::node::wake() {
  if (std::exchange(ticking_, true))
    return;
  post(now() + news_after, [this] {
    ticking_ = false;
    for (const auto& x : std::vector{channels_}) {
      x->on_tick();
      forget_if_finished(x);
    }
  });
}

// Reads the greeting of an incoming connection; it names the channel. Returns false if the greeting
// has not arrived, or names an unknown channel.
bool simulated_channels::node::identify(channel_ptr& stranger, sim_node peer) {
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
  drop(mine); // This end may not have noticed that the old connection broke.
  resume(mine, stranger->release_socket(), &greeting);
  stranger = mine;
  return true;
}

void simulated_channels::node::forget_if_finished(const channel_ptr& channel) {
  if (!channel->finished())
    return;
  routes_.erase(channel);
  drop(channel);
}

void simulated_channels::node::drop(const channel_ptr& channel) {
  std::erase(channels_, channel);
  channel->release_socket();
}

void simulated_channels::node::resume(const channel_ptr& channel, file_descriptor socket,
                                      const proto::Greeting* greeting) {
  channels_.push_back(channel);
  channel->resume(std::move(socket), greeting, routes_.at(channel).token);
}

void simulated_channels::node::on_cut(const channel_ptr& channel) {
  drop(channel);
  const auto x = routes_.find(channel);
  if (x == routes_.end())
    return;
  auto& where = x->second;
  if (where.give_up == time_point{})
    where.give_up = now() + channel->grace();
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

void simulated_channels::node::give_up_later(const channel_ptr& channel, time_point when,
                                             const std::string& reason) {
  post(when, [this, channel, cuts = channel->cuts(), reason] {
    if (!channel->cut() || channel->cuts() != cuts)
      return;
    routes_.erase(channel);
    channel->give_up(reason);
  });
}

void simulated_channels::node::connect_again_later(const channel_ptr& channel, std::uint64_t cuts,
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

} // namespace troupe
