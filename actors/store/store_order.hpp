#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe {

/// Limits the operations of a client that a server has not answered: their number, and the bytes of
/// their values. A single operation may have any size.
struct store_window {
  static constexpr std::size_t operations = 64;

  /// @param elements number of elements of the server
  static constexpr std::size_t bytes(std::size_t elements) noexcept {
    constexpr std::size_t least = std::size_t{1} << 20;
    return 2 * elements * sizeof(float) + least;
  }
};

/// Decides which operations of a client a server may execute now, so that they take effect in order
/// and only once. Messages of a client can overtake each other on some connections, and are
/// repeated after a connection broke. A repeated push or assignment is not executed again. A
/// repeated pull reads the values again. This is a plain object, not an actor.
///
/// It remembers only the `most_clients` clients that were active last, so that its memory is
/// limited.
class store_order {
public:
  /// The largest number of clients that it remembers.
  static constexpr std::size_t most_clients = 4096;

  /// Adds a client. `again`: true if the client has opened this server before. Returns false if
  /// `again` is true but the client is unknown: the server has restarted, or has forgotten the
  /// client.
  bool open(std::uint64_t client, bool again);

  void close(std::uint64_t client);

  bool knows(std::uint64_t client) const { return clients_.contains(client); }

  enum class turn : std::uint8_t {
    /// The operation must be executed now. Call done() afterwards.
    due,
    /// The operation was already executed.
    done,
    /// Earlier operations of the client have not arrived.
    early,
    /// The number is 0, or is farther ahead than store_window allows.
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
