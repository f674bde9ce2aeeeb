#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe {

/// How far a client may be ahead of the answers of a server: this many operations, and values of
/// this many bytes, or one operation of any size.
struct store_window {
  static constexpr std::size_t operations = 64;

  /// @param elements of the server
  static constexpr std::size_t bytes(std::size_t elements) noexcept {
    constexpr std::size_t least = std::size_t{1} << 20;
    return 2 * elements * sizeof(float) + least;
  }
};

/// Puts the operations of each client in order at a server. Plain state. Messages of a client can
/// overtake each other on some connections, and are repeated after a broken one. Each operation is
/// due once.
///
/// Its memory is bounded: a number for each client, and of many clients those that were used last.
class store_order {
public:
  /// Clients that are remembered.
  static constexpr std::size_t most_clients = 4096;

  /// A client begins, or says again that it is there. False if it was to be known (`again`), and is
  /// not: this server has started again since, or has forgotten it.
  bool open(std::uint64_t client, bool again);

  /// It ends.
  void close(std::uint64_t client);

  bool knows(std::uint64_t client) const { return clients_.contains(client); }

  enum class turn : std::uint8_t {
    /// It is to be done now: done() follows.
    due,
    /// It was done before.
    done,
    /// Others come first.
    early,
    /// Farther ahead than any client may be, or number 0.
    impossible,
  };

  /// Decides about operation `number` of a known client.
  turn judge(std::uint64_t client, std::uint64_t number);

  /// The operation that was due is done.
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
