#pragma once

#include "actors/link/stream_channel.hpp"

#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// Makes channels: the connections that carry the messages between two processes. channel_host
/// makes them with sockets, simulated_channels for a simulation. Thread-safe.
class channel_maker {
public:
  using channel_ptr = std::shared_ptr<stream_channel>;

  /// Receives the new channel, or null and the reason why there is none. Called on the thread that
  /// reads the channel, before this thread reads a message. The callee must call
  /// stream_channel::listen().
  using on_channel = std::function<void(channel_ptr channel, const std::string& problem)>;

  virtual ~channel_maker() = default;

  /// Makes an offer of a channel. The caller sends the offer to a peer. When the peer connects,
  /// `then` receives the channel.
  virtual proto::ChannelOffer offer(on_channel then) = 0;

  /// Cancels an offer, because the peer will not connect.
  virtual void withdraw(const proto::ChannelOffer& offer) = 0;

  /// Connects to the peer that made this offer.
  /// @param address the peer's address, if it is on another host
  virtual void connect(const proto::ChannelOffer& offer, const std::string& address,
                       on_channel then) = 0;
};

} // namespace troupe
