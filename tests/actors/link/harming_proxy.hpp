#pragma once

#include "kernels/file_descriptor.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

namespace troupe::test {

/// A TCP proxy on loopback, between the two ends of a channel. It counts the records that pass, and
/// harms the connection at a record that the test chooses. Thread-safe.
class harming_proxy {
public:
  enum class harm : std::uint8_t {
    /// Both ends see that the connection ends.
    cut,
    /// Both ends see an error. Data that was on its way is lost.
    reset,
    /// One end sees that the connection ends, and the other end does not.
    half_close,
    /// No more bytes pass, and neither end sees anything.
    stall,
    /// The receiver of the record sees an error. The sender sees nothing, even if the receiver
    /// closes its end.
    half_open,
    /// Like `cut`. Afterwards, the port refuses connections for the time `refusal`.
    refuse,
    /// Like `cut`. Afterwards, the port refuses all connections.
    refuse_for_good
  };

  static constexpr std::chrono::milliseconds refusal{300};

  /// @param to the port of the end that accepts connections
  explicit harming_proxy(std::uint16_t to);
  ~harming_proxy();
  harming_proxy(const harming_proxy&) = delete;
  harming_proxy& operator=(const harming_proxy&) = delete;

  std::uint16_t port() const noexcept { return port_; }

  /// Plans one harm, at record number `record` from now, counted over both directions. The harm
  /// comes after `bytes` bytes of this record, or at its end if the record is shorter. Only one
  /// plan is possible at a time.
  void plan(harm how, std::uint64_t record, std::uint64_t bytes);

  /// From now on, each record with more than `bytes` bytes stalls its connection, as in a network
  /// that loses large packets.
  void lose_records_above(std::uint64_t bytes);

  /// True if the planned harm has not happened yet.
  bool planned() const;

private:
  struct direction {
    int from = -1;
    int to = -1;
    std::array<char, 16> head{};
    std::size_t head_seen = 0;
    /// Bytes of the current record, without its header, that have not passed yet.
    std::uint64_t left = 0;
    std::uint64_t passed = 0;
    /// True: bytes that arrive are dropped.
    bool dead = false;
  };

  struct connection {
    /// The socket to the end that connected, and the socket to the end that accepts.
    std::array<file_descriptor, 2> ends;
    std::array<direction, 2> ways;
    bool stalled = false;
  };

  void run();
  void listen_again_if_due();
  void accept();
  bool pass_on(connection& x, direction& way);
  std::size_t count(direction& way, std::span<const char> bytes, std::optional<harm>& due);
  bool harm_now(harm how, connection& x, direction& way);

  std::uint16_t to_;
  std::uint16_t port_ = 0;
  file_descriptor listener_;
  file_descriptor bell_;
  std::optional<std::chrono::steady_clock::time_point> refuses_until_;
  std::list<connection> connections_;
  mutable std::mutex mutex_;
  bool planned_ = false;
  harm how_ = harm::cut;
  std::uint64_t record_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t largest_ = std::numeric_limits<std::uint64_t>::max();
  std::thread thread_;
};

} // namespace troupe::test
