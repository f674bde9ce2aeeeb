#pragma once

#include "actors/link/channel_maker.hpp"
#include "actors/link/peer_reader.hpp"
#include "actors/link/reader_turn.hpp"
#include "actors/spawner.hpp"
#include "kernels/function_ref.hpp"

#include <chrono>
#include <condition_variable>
#include <thread>

namespace troupe {

struct channel_host_options {
  /// The address on which to listen for peers on other hosts: an IP address or a host name. If it
  /// is empty, only peers on this host can connect.
  std::string address;
  /// The TCP port on which to listen. 0 selects a free port.
  std::uint16_t port = 0;
  /// If true, peers on this host connect through a Unix socket and share memory. If false, they use
  /// TCP, as peers on other hosts always do.
  bool local = true;
  /// Largest payload that a peer may send, in bytes. It also limits the total size of the shared
  /// memory that a peer lends (stream_options::limits).
  std::uint64_t max_bytes = std::uint64_t{1} << 36;
  /// How long a peer may take to accept a connection.
  std::chrono::milliseconds connect_timeout{2'000};
  /// How long a connection between hosts may stay broken. After this time, its channel ends.
  /// stream_channel::limit() can set another time. A peer that must connect again gets more time if
  /// its port still accepts connections: stream_channel::unnoticed_for() is added. Such a peer may
  /// not have noticed yet that the connection broke.
  std::chrono::milliseconds grace{5'000};
  /// If the peer's port refuses connections for this long, the peer's process counts as ended. A
  /// shorter refusal may come from a firewall or proxy that restarts.
  std::chrono::milliseconds refused_for{1'000};
  /// Longest time for which stop() waits until the last messages are written to their sockets.
  std::chrono::milliseconds last_words{300};
  /// True if the program continues after stop(). Then stop() also waits, for at most `last_words`,
  /// until the peers have acknowledged all messages and released the shared memory that this
  /// process lent them. Memory that a peer has not released by then is never used again, because
  /// the peer may still read it.
  bool outlived = false;
  /// If true, a peer on this host that is bound to one processor gets its own reading thread. The
  /// thread runs on the same processor and reads only the messages of this peer. Set it in a
  /// process that only answers requests, such as a parameter server. While the peer waits for an
  /// answer, its processor is idle, and the caches of this processor hold the data that the peer
  /// has sent.
  bool reads_beside_peers = false;
};

/// Makes and owns the connections (stream_channel) of this process to all other processes. A thread
/// of this object reads all connections, except those with their own reading thread
/// (channel_host_options::reads_beside_peers). While another thread waits for a message, it can
/// read in place of the thread of this object (read_until, run_until). Peers on this host connect
/// through an abstract Unix socket, which only processes in the same network namespace can reach.
/// All other peers connect through TCP.
///
/// Thread-safe.
class channel_host final : public channel_maker, public idle_task {
public:
  /// Throws std::system_error if it cannot listen.
  /// @param listener a socket that already listens for peers on other hosts, at `options.port`
  channel_host(caf::actor_system& sys, channel_host_options options, file_descriptor listener = {});

  /// Calls stop().
  ~channel_host() override;

  channel_host(const channel_host&) = delete;
  channel_host& operator=(const channel_host&) = delete;

  /// Ends all connections. After this, no callback is called any more. Do not call stop() on the
  /// thread of this object.
  void stop();

  /// Reads all connections on the calling thread and handles the messages, until done() is true.
  /// Use it on a thread that waits for a message, so that the message wakes no other thread first.
  /// Polls without sleeping, and therefore occupies a core. Gives up if nothing arrives for
  /// `patience`. Gives up at once if another thread already reads in this way. The calling thread
  /// must not hold a mutex that a receiver of a message could lock. It must not be the thread of
  /// this object.
  /// @return done()
  bool read_until(function_ref<bool()> done, std::chrono::nanoseconds patience);

  /// Like read_until(), but it sleeps until a message arrives, for any length of time. Use it only
  /// on a thread that calls it often. Between two calls, the thread of this object begins to read
  /// only after some milliseconds without a reader (reader_turn).
  void run_until(function_ref<bool()> done) override;

  void interrupt() override;

  proto::ChannelOffer offer(on_channel then) override;
  void withdraw(const proto::ChannelOffer& offer) override;
  void connect(const proto::ChannelOffer& offer, const std::string& address,
               on_channel then) override;

private:
  using handler = std::function<void(std::uint32_t events)>;

  using time_point = std::chrono::steady_clock::time_point;

  class timer;
  class watched_sockets;

  /// How to connect again to the peer of a channel between hosts.
  struct route {
    std::string token;
    /// The peer's IP address. Not its name, because a server of names may be unreachable, too.
    std::string address;
    std::uint16_t port = 0;
    /// True if this side must connect again. False if this side waits until the peer connects.
    bool ours = false;
    /// The time at which the channel ends if the connection is still broken; zero while the
    /// connection works.
    time_point give_up = {};
    /// True if the connection was restored after the break, but broke again before anything arrived.
    bool restored = false;
    /// True if an attempt has shown that this host can connect to the peer's port.
    bool reachable = false;
  };

  void run();
  /// Waits up to `timeout` milliseconds for events, and handles them; -1 waits without a limit.
  /// Returns false if there were no events.
  bool handle_events(int timeout);
  bool all_idle();
  void end_readers();
  void post(std::function<void()> task);
  void run_tasks();
  void watch(int file, std::uint32_t events, handler then);
  void forget(int file);
  void on_connection(int listener, bool same_host);
  void on_greeting(const channel_ptr& stranger, const std::string& address);
  void serve(const channel_ptr& channel);
  bool read_beside(const channel_ptr& channel);
  void on_events(const channel_ptr& channel, std::uint32_t events);
  void exchange(const channel_ptr& channel, std::uint32_t events);
  void attend(const channel_ptr& channel, const std::function<void()>& task);
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
  bool pause(std::chrono::milliseconds time, const channel_ptr& channel, std::uint64_t cuts);
  void in_background(std::function<void()> task);

  caf::actor_system& sys_;
  channel_host_options options_;
  /// What all channel offers of this process have in common: all fields except the token.
  proto::ChannelOffer offer_;
  file_descriptor local_;
  file_descriptor remote_;
  /// Shared with the channels, which may outlive this object.
  std::shared_ptr<watched_sockets> watched_;
  file_descriptor bell_;
  /// A descriptor in reserve. If the process cannot open more files, this one is closed for a
  /// moment. Then a waiting connection can be accepted and refused.
  file_descriptor spare_;
  std::shared_ptr<timer> timer_;

  std::mutex mutex_;
  bool stopping_ = false;
  /// True when the thread of this object has ended. By then, the last messages are written or given
  /// up.
  bool stopped_ = false;
  std::vector<std::function<void()>> tasks_;
  std::map<std::string, on_channel> expected_;
  std::condition_variable changed_;
  /// Number of background threads. They connect and resolve names, which takes time.
  int background_ = 0;

  /// Decides which thread waits for events of the connections. Shared with the channels, which may
  /// outlive this object.
  std::shared_ptr<reader_turn> turn_;

  /// Lets threads handle events one after the other. A mutex alone is not fair: a thread that
  /// always has events would lock it again before a waiting thread wakes.
  class one_at_a_time {
  public:
    void lock() {
      const std::lock_guard guard{next_};
      mutex_.lock();
    }
    void unlock() { mutex_.unlock(); }

  private:
    /// Locked by the thread that waits next.
    std::mutex next_;
    std::mutex mutex_;
  };

  /// Locked while a thread handles events; protects the members below. A thread must not lock it
  /// while it holds another mutex.
  one_at_a_time handling_;
  std::map<int, std::shared_ptr<handler>> handlers_;
  std::map<int, channel_ptr> channels_;
  std::map<channel_ptr, route> routes_;
  /// New connections whose first record, the greeting, has not arrived. The oldest is first.
  std::deque<channel_ptr> strangers_;
  /// The reading threads of channel_host_options::reads_beside_peers, by socket.
  std::map<int, std::unique_ptr<peer_reader>> readers_;
  /// Readers whose socket is closed. Their threads may still run.
  std::vector<std::unique_ptr<peer_reader>> ended_readers_;

  std::thread thread_;
};

} // namespace troupe
