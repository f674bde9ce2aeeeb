#pragma once

// Internal classes of simulated_channels, only for its own source files.

#include "actors/simulation/simulated_channels.hpp"

namespace troupe {

/// A connection of two channels. Each end has a socket for its channel. simulated_channels passes
/// the bytes from one end to the other.
struct simulated_channels::connection {
  static constexpr std::size_t header_bytes = 16;

  struct side {
    sim_node node = 0;
    /// The socket of simulated_channels; the channel of this side has the other end of the pair.
    /// Empty if the connection has ended at this side.
    file_descriptor wire;
    /// Null if no channel uses this side.
    channel_ptr channel;
    /// The record that this side is sending: its header, the number of its bytes sent so far, and
    /// its size.
    std::array<char, header_bytes> head{};
    std::uint64_t seen = 0;
    std::uint64_t size = 0;
    std::optional<record_fate> fate;
    /// How many bytes of this side are in transit; and whether its other bytes wait for them.
    std::size_t in_transit = 0;
    bool waits = false;
  };

  std::uint64_t number = 0;
  /// First the side that connected, then the side that accepted.
  std::array<side, 2> sides;
  /// True if everything sent from now on is lost.
  bool broken = false;
  /// True if everything that is in transit is also lost.
  bool lost = false;
};

/// The channels of one node. Does the work of a channel_host.
class simulated_channels::node final : public channel_maker,
                                       public std::enable_shared_from_this<node> {
public:
  node(simulated_channels& all, sim_node number);

  proto::ChannelOffer offer(on_channel then) override;
  void withdraw(const proto::ChannelOffer& offer) override;
  void connect(const proto::ChannelOffer& offer, const std::string& address,
               on_channel then) override;

  /// Calls a function at this virtual time. The function is not called after clear() or after a
  /// crash of the node.
  void post(time_point when, std::function<void()> task);

  void crash();
  bool crashed() const noexcept { return crashed_; }
  void clear();

  channel_ptr make_channel(file_descriptor socket);

  /// Makes the channel at this end of the connection read the bytes that have arrived.
  void read(const connection_ptr& x, std::size_t end);

  /// Makes the channel read its data, or the end of its connection.
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
  /// All channels that have a connection. An incoming connection counts only when its greeting has
  /// arrived.
  std::vector<channel_ptr> channels_;
  std::map<channel_ptr, route> routes_;
  bool ticking_ = false;
  bool crashed_ = false;
  bool ended_ = false;
};

} // namespace troupe
