#pragma once

#include "actors/link/channel_maker.hpp"
#include "actors/simulation/simulated_network.hpp"

#include <array>
#include <compare>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// The ways in which a connection can break.
enum class breakage {
  /// Both ends read everything that was sent before, and then the end of the connection.
  cut,
  /// Like `cut`, but everything in transit is lost, in both directions.
  reset,
  /// The receiver of the record reads the end of the connection. The sender receives nothing more,
  /// not even the end.
  half_open,
  /// No byte arrives any more at either end, and neither end notices the break.
  stall
};

/// Tells how the connection breaks while it carries a record.
struct record_fate {
  breakage how = breakage::cut;
  /// How many bytes of the record still arrive. If the record is shorter, it arrives completely.
  std::uint64_t bytes = ~std::uint64_t{0};
};

/// Decides what happens to a record (a message on a channel); called when its header is sent. If
/// the function returns nothing, the record arrives. Otherwise, the connection breaks.
using record_judge =
  std::function<std::optional<record_fate>(sim_node from, sim_node to, proto::RecordKind kind)>;

/// The channels of all links of a simulated cluster. They are the stream_channels of production,
/// used as between processes on different hosts. Each channel has one end of a pair of sockets, and
/// this object has the other end. This object reads the bytes that a channel writes, and passes
/// them to the peer's channel at the virtual time of arrival. A test decides where connections
/// break (judge_with). They are restored as in channel_host.
///
/// Each node has an actor, "troupe.channels", which does the work of a channel_host's thread.
/// Single-threaded and deterministic, like simulated_network. The network must outlive this object.
class simulated_channels {
public:
  simulated_channels(caf::actor_system& sys, simulated_network& network, std::uint64_t seed);
  ~simulated_channels();
  simulated_channels(const simulated_channels&) = delete;
  simulated_channels& operator=(const simulated_channels&) = delete;

  /// Adds a node and returns its maker of channels. Nodes are added in the order of their numbers.
  /// Spawns one actor.
  std::shared_ptr<channel_maker> add_node();

  void judge_with(record_judge judge) { judge_ = std::move(judge); }

  /// Takes the bytes that channels have written since the last call. Call it before virtual time
  /// advances.
  void pump();

  /// Breaks all connections of this node. From now on, no node can connect to it.
  void crash(sim_node node);

  /// Number of records sent so far, and number of connections that the function given to
  /// judge_with() has broken.
  std::uint64_t records() const noexcept { return records_; }
  std::uint64_t broken() const noexcept { return broken_; }

  /// Drops all channels and ends the actors.
  void clear();

private:
  class node;
  struct connection;

  using time_point = std::chrono::steady_clock::time_point;
  using channel_ptr = channel_maker::channel_ptr;
  using connection_ptr = std::shared_ptr<connection>;

  /// Makes a connection between two nodes. Returns the connection, and the socket for the channel
  /// of node `from`. The caller must make this channel and attach it to the connection.
  std::pair<connection_ptr, file_descriptor> connect(sim_node from, sim_node to);
  file_descriptor open_end(const connection_ptr& x, std::size_t end);
  void watch(const connection_ptr& x, std::size_t end);
  void landed(const connection_ptr& x, std::size_t end, std::size_t bytes);
  void drain(const connection_ptr& x, std::size_t end);
  void send(const connection_ptr& x, std::size_t end, std::span<const char> bytes);
  std::size_t count(connection& x, std::size_t end, std::span<const char> bytes,
                    std::optional<breakage>& due);
  void break_now(const connection_ptr& x, std::size_t end, breakage how);
  void arrive(const connection_ptr& x, std::size_t end, std::span<const char> bytes);
  void close(const connection_ptr& x, std::size_t end);
  void hang_up_later(const connection_ptr& x, std::size_t end);
  void hang_up(const connection_ptr& x, std::size_t end);

  caf::actor_system& sys_;
  simulated_network& network_;
  random_stream random_;
  record_judge judge_;
  file_descriptor epoll_;
  std::vector<std::shared_ptr<node>> nodes_;
  /// The connections by number and end (0 or 1). An end is listed while this object has an open
  /// socket there.
  std::map<std::pair<std::uint64_t, std::size_t>, connection_ptr> open_;
  std::vector<char> buffer_;
  std::uint64_t connections_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t broken_ = 0;
};

} // namespace troupe
