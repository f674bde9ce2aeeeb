#pragma once

#include "actors/link/stream_channel.hpp"

#include <chrono>
#include <thread>

namespace troupe {

struct channel_host_options {
  /// Where to listen for peers on other hosts, an IP address or host name; empty: peers on this
  /// host alone.
  std::string address;
  /// 0 takes a free port.
  std::uint16_t port = 0;
  /// Peers on this host come by a Unix socket, and share memory; otherwise by TCP, as all others.
  bool local = true;
  /// See stream_options.
  std::uint64_t max_bytes = std::uint64_t{1} << 36;
  /// How long to wait until a peer takes a connection.
  std::chrono::milliseconds connect_timeout{2'000};
};

/// The connections over which the links of a process send their messages, with one thread that
/// waits for all of them. Peers on this host come by an abstract Unix socket, which a container
/// shares with those of its network namespace alone; others by TCP.
///
/// Thread-safe.
class channel_host {
public:
  using channel_ptr = std::shared_ptr<stream_channel>;

  /// Hears of the connection, or of the reason why there is none (null). Called by the thread of
  /// this object, before the channel reads a message: it must call stream_channel::listen().
  using on_channel = std::function<void(channel_ptr channel, const std::string& problem)>;

  /// Throws std::system_error if it cannot listen.
  channel_host(caf::actor_system& sys, channel_host_options options);

  /// Calls stop().
  ~channel_host();

  channel_host(const channel_host&) = delete;
  channel_host& operator=(const channel_host&) = delete;

  /// Ends all connections; nothing is called from now on. Not for the thread of this object.
  void stop();

  /// What to tell a peer, whose connection goes to `then`.
  proto::ChannelOffer offer(on_channel then);

  /// The peer will not come.
  void withdraw(const proto::ChannelOffer& offer);

  /// Connects to a peer.
  /// @param address where the peer can be reached, if it is on another host
  void connect(const proto::ChannelOffer& offer, const std::string& address, on_channel then);

private:
  using handler = std::function<void(std::uint32_t events)>;

  class timer;

  void run();
  void post(std::function<void()> task);
  void run_tasks();
  void watch(int file, std::uint32_t events, handler then);
  void forget(int file);
  void on_connection(int listener, bool same_host);
  void on_greeting(const channel_ptr& channel);
  void serve(const channel_ptr& channel);
  void on_events(const channel_ptr& channel, std::uint32_t events);
  void on_tick();
  channel_ptr make_channel(file_descriptor socket, bool same_host);
  void connected(file_descriptor socket, bool same_host, const std::string& token,
                 const on_channel& then);

  caf::actor_system& sys_;
  channel_host_options options_;
  /// Of the offers that this process makes, but for the token.
  proto::ChannelOffer offer_;
  file_descriptor local_;
  file_descriptor remote_;
  file_descriptor epoll_;
  file_descriptor bell_;
  std::shared_ptr<timer> timer_;

  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::function<void()>> tasks_;
  std::map<std::string, on_channel> expected_;
  /// Connecting takes time, and names must be resolved.
  std::vector<std::thread> diallers_;

  // Of the thread.
  std::map<int, std::shared_ptr<handler>> handlers_;
  std::map<int, channel_ptr> channels_;
  /// Connections whose greeting is still to come, in the order of their arrival.
  std::deque<channel_ptr> strangers_;

  std::thread thread_;
};

} // namespace troupe
