#pragma once

#include "actors/link/stream_channel.hpp"

#include <chrono>
#include <condition_variable>
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
  /// How long a connection between hosts may be broken before its channel is given up.
  std::chrono::milliseconds grace{5'000};
  /// How long stop() waits for peers to receive what was said last.
  std::chrono::milliseconds last_words{300};
  /// The program goes on after stop(), which therefore also waits for peers to acknowledge messages
  /// and to let go of shared memory. Memory that they still hold after `last_words` is never used
  /// again.
  bool outlived = false;
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

  using time_point = std::chrono::steady_clock::time_point;

  class timer;

  /// How the peer of a channel between hosts can be reached again.
  struct route {
    std::string token;
    std::string address;
    std::uint16_t port = 0;
    /// This side connects; the other waits.
    bool ours = false;
    /// Where the channel is cut.
    time_point give_up = {};
    /// The port of a peer that has connected was seen to be open.
    bool reachable = false;
  };

  void run();
  void post(std::function<void()> task);
  void run_tasks();
  void watch(int file, std::uint32_t events, handler then);
  void forget(int file);
  void on_connection(int listener, bool same_host);
  void on_greeting(const channel_ptr& stranger);
  void serve(const channel_ptr& channel);
  void on_events(const channel_ptr& channel, std::uint32_t events);
  void on_tick();
  channel_ptr make_channel(file_descriptor socket, bool same_host);
  void connected(file_descriptor socket, const route& where, const on_channel& then);
  void on_cut(const channel_ptr& channel);
  void connect_again(const channel_ptr& channel, const route& where, std::uint64_t cuts);
  void ask_whether_it_is_reachable(const channel_ptr& channel, const route& where);
  void ask_whether_it_runs(const channel_ptr& channel, const route& where, std::uint64_t cuts);
  void resume(const channel_ptr& channel, file_descriptor socket, const proto::Greeting* greeting);
  void give_up(const channel_ptr& channel, std::uint64_t cuts, const std::string& reason);
  void drop(const channel_ptr& channel);
  bool pause(std::chrono::milliseconds time);
  void in_background(std::function<void()> task);

  caf::actor_system& sys_;
  channel_host_options options_;
  /// What all offers of this process share: everything except the token.
  proto::ChannelOffer offer_;
  file_descriptor local_;
  file_descriptor remote_;
  file_descriptor epoll_;
  file_descriptor bell_;
  /// Closed for a moment if no other descriptor is free.
  file_descriptor spare_;
  std::shared_ptr<timer> timer_;

  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::function<void()>> tasks_;
  std::map<std::string, on_channel> expected_;
  std::condition_variable changed_;
  /// Threads: connecting takes time, and names must be resolved.
  int background_ = 0;

  // Of the thread.
  std::map<int, std::shared_ptr<handler>> handlers_;
  std::map<int, channel_ptr> channels_;
  std::map<channel_ptr, route> routes_;
  /// Connections whose greeting has not arrived, in the order in which they were accepted.
  std::deque<channel_ptr> strangers_;

  std::thread thread_;
};

} // namespace troupe
