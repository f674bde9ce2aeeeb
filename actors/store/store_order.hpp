#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe {

/// Limits what a client may send before a server answers: the number of operations, and the bytes
/// of their values. A single operation may have any size.
struct store_window {
  static constexpr std::size_t operations = 64;

  /// @param elements number of elements of the server
  static constexpr std::size_t bytes(std::size_t elements) noexcept {
    constexpr std::size_t least = std::size_t{1} << 20;
    return 2 * elements * sizeof(float) + least;
  }
};

/// Decides which operations of a client a server may execute now, so that they take effect in
/// order. It is a plain object: no actor, no messages. On some connections, messages of a client
/// can overtake each other. After a connection broke, messages are repeated. Each push and each
/// assignment takes effect only once. A repeated pull reads the values again.
///
/// Its memory is bounded, because it remembers only the `most_clients` clients that were active
/// last.
class store_order {
public:
  /// Number of clients that it remembers.
  static constexpr std::size_t most_clients = 4096;

  /// Adds a client. `again`: true if the client has opened this server before. Returns false if
  /// `again` is true and the client is unknown, because the server has restarted since or has
  /// forgotten the client.
  bool open(std::uint64_t client, bool again);

  /// Forgets a client.
  void close(std::uint64_t client);

  bool knows(std::uint64_t client) const { return clients_.contains(client); }

  enum class turn : std::uint8_t {
    /// To be executed now. Call done() afterwards.
    due,
    /// Already executed.
    done,
    /// Earlier operations are missing.
    early,
    /// Farther ahead than a client may be, or number 0.
    impossible,
  };

  /// Decides whether operation `number` of a known client may be executed.
  turn judge(std::uint64_t client, std::uint64_t number);

  /// Records that the due operation was executed.
  void done(std::uint64_t client) { ++clients_.at(client).next; }

private:
  struct state {
    std::uint64_t next = 1;
    std::uint64_t used = 0;
  };

  std::map<std::uint64_t, state> clients_;
  std::uint64_t uses_ = 0;
};

} // namespace troupe
