#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe {

/// How much a client may send before a server answers: this many operations, and this many bytes of
/// values. A single operation may have any size.
struct store_window {
  static constexpr std::size_t operations = 64;

  /// @param elements number of elements of the server
  static constexpr std::size_t bytes(std::size_t elements) noexcept {
    constexpr std::size_t least = std::size_t{1} << 20;
    return 2 * elements * sizeof(float) + least;
  }
};

/// Puts the operations of each client in order, at a server. Plain state. On some connections,
/// messages of a client can overtake each other. After a connection broke, they are repeated. Each
/// operation is due exactly once.
///
/// Its memory is bounded: one number for each of the clients that were active last.
class store_order {
public:
  /// Number of clients that it remembers.
  static constexpr std::size_t most_clients = 4096;

  /// Adds a client. `again`: the client has opened this server before. Returns false if it has, but
  /// is unknown: the server has restarted since, or has forgotten it.
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
