#pragma once

// The parts of simulated_channels; only for its own sources.

#include "actors/simulation/simulated_channels.hpp"

namespace troupe {

/// Two sockets, one for each end's channel. This object passes what one channel writes to the
/// other.
struct simulated_channels::connection {
  static constexpr std::size_t header_bytes = 16;

  struct side {
    sim_node node = 0;
    /// The other end of the channel's socket. Empty if the connection has ended here.
    file_descriptor wire;
    /// Null if no channel uses the connection.
    channel_ptr channel;
    /// The record that this side is sending: its header, how much of it was sent, and its size.
    std::array<char, header_bytes> head{};
    std::uint64_t seen = 0;
    std::uint64_t size = 0;
    std::optional<record_fate> fate;
  };

  std::uint64_t number = 0;
  /// The side that connected, then the side that accepted.
  std::array<side, 2> sides;
  /// Everything sent from now on is lost.
  bool broken = false;
  /// Everything in transit is lost, too.
  bool lost = false;
};

/// A node's channels: does what channel_host does.
class simulated_channels::node final : public channel_maker,
                                       public std::enable_shared_from_this<node> {
public:
  node(simulated_channels& all, sim_node number);

  proto::ChannelOffer offer(on_channel then) override;
  void withdraw(const proto::ChannelOffer& offer) override;
  void connect(const proto::ChannelOffer& offer, const std::string& address,
               on_channel then) override;

  /// Calls a function on this node's thread. It is not called after clear(), or if the node
  /// crashes.
  void post(time_point when, std::function<void()> task);

  void crash();
  bool crashed() const noexcept { return crashed_; }
  void clear();

  channel_ptr make_channel(file_descriptor socket);

  /// Reads what has arrived for the channel that uses the connection.
  void read(const connection_ptr& x, std::size_t end);

  /// Reads data, or the end of the connection.
  void attend(const channel_ptr& channel);

private:
  /// See channel_host::route.
  struct route {
    std::string token;
    sim_node peer = 0;
    bool ours = false;
    time_point give_up = {};
  };

  std::uint16_t port() const noexcept { return static_cast<std::uint16_t>(number_ + 1); }
  time_point now() const;
  bool can_connect(sim_node peer) const;
  void wake();
  bool identify(channel_ptr& stranger, sim_node peer);
  void forget_if_finished(const channel_ptr& channel);
  void drop(const channel_ptr& channel);
  void resume(const channel_ptr& channel, file_descriptor socket, const proto::Greeting* greeting);
  void on_cut(const channel_ptr& channel);
  void give_up_later(const channel_ptr& channel, time_point when, const std::string& reason);
  void connect_again_later(const channel_ptr& channel, std::uint64_t cuts,
                           std::chrono::milliseconds wait);

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

} // namespace troupe
