#pragma once

#include "actors/cluster/peer_host.hpp"
#include "actors/store/store_request.hpp"
#include "actors/store/store_rule.hpp"
#include "messages/errors.hpp"
#include "messages/store.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// The whole interface of a parameter store. Servers hold float32 values; clients push to them and
// pull from them.
//
// The store has n elements. Each server holds an equal part of them, in order. An operation works
// on ranges of elements, at the servers that hold them.
//
// Order. Each server applies the operations of a client in the order of the client's calls, and
// each operation as a whole. So a pull sees all earlier pushes of the same client, and never a part
// of a push. Operations of different clients take effect in any order. Different servers do not
// wait for each other: a pull from two servers may see another client's push at only one of them.
//
// Errors. If a server dies, its connection breaks, or it does not answer within the deadline,
// wait() throws a store_error that names the server, within twice the deadline. After that, each
// operation at this server throws the same error. Operations at other servers continue. An
// operation without an answer may or may not have taken effect. retry() connects again and repeats
// these operations, in order. Each takes effect exactly once, but a repeated pull may also see
// later pushes. If the server has restarted and so lost its values, retry() throws.
//
// Buffers. Pushed values are lent to the servers without a copy, within a process and between
// processes on one host. Do not write to them until wait() has returned and payload::unique() is
// true. Pulled values are read-only, because a server may read the same memory. While the client
// holds them, the server needs other memory for its next update.
//
// Threads. Only one thread at a time may use a store_client; a program with many threads makes a
// client for each. In wait(), a thread whose client was made by connect() polls for messages, and
// sleeps only after 100 microseconds without one. Any thread may make and destroy a store_host. Do
// not use either from an actor that shares its thread with others, because calls block.

namespace troupe {

/// Clients and servers need the same options, except for `rule` and `connect_timeout`.
struct store_options {
  /// Number of elements of the whole store.
  std::size_t elements = 0;
  /// For processes: the address at which each server listens, "host:port". There are as many
  /// servers as addresses.
  std::vector<std::string> addresses;
  /// automatic: processes on one host share memory, others use TCP.
  peer_host_options::transport transport = peer_host_options::transport::automatic;
  /// How long a client waits for an answer.
  std::chrono::milliseconds deadline{10'000};
  /// How long connect() and retry() wait for the servers.
  std::chrono::milliseconds connect_timeout{30'000};
  /// The effect of a push on the values of a server.
  store_rule rule;
};

/// The reason why an operation has no result.
struct store_failure {
  /// link_lost: the server has died, or its connection broke. timed_out: no answer within the
  /// deadline. fenced: the server has restarted and lost its values. malformed: it has different
  /// options, or refuses an operation. join_refused: it refuses this client. interrupted: the
  /// server is ending.
  errc code = errc::none;
  std::size_t server = 0;
  /// The time of the server's last answer, or of the connection.
  std::chrono::steady_clock::time_point last_heard;
  /// All of this as text for people.
  std::string text;
};

class store_error : public std::runtime_error {
public:
  explicit store_error(store_failure failure);
  ~store_error() override;

  const store_failure& failure() const noexcept { return failure_; }

private:
  store_failure failure_;
};

/// A server of a store, in this process and on its own thread. The destructor ends the server. The
/// server's values start at 0.
class store_host {
public:
  /// Starts all servers of a store, for clients in the same actor system. Throws input_error if an
  /// option is invalid. Addresses are not used.
  static std::vector<store_host> in_one_system(caf::actor_system& sys, std::size_t servers,
                                               const store_options& options);

  /// Starts server number `index` of `options.addresses`, for clients in any process. The system
  /// must have loaded `caf::io::middleman`. Throws input_error if an option is invalid, or if the
  /// server cannot listen at its address.
  static store_host listen(caf::actor_system& sys, std::size_t index, const store_options& options);

  store_host(store_host&& other) noexcept;
  store_host& operator=(store_host&& other) noexcept;
  ~store_host();

private:
  friend class store_client;
  class state;

  explicit store_host(std::unique_ptr<state> x);

  std::unique_ptr<state> state_;
};

/// Identifies an operation, for wait().
struct store_ticket {
  std::uint64_t number = 0;
};

/// The result of an operation.
struct store_result {
  /// For a pull: the values of all ranges, one after another.
  payload values;
  /// For each server: how many pushes and assignments, of all clients, it had applied when it
  /// answered. 0 for servers that this operation did not need.
  std::vector<std::uint64_t> versions;
};

/// A client of a store. The comment at the top of this file lists its guarantees.
///
/// An operation returns at once, with a ticket for wait(). It blocks only if a server would
/// otherwise have too much unanswered work of this client (store_window): 64 operations, or values
/// with more than twice the bytes that the server holds, plus 1 MiB.
///
/// Ranges must ascend and not overlap, and `values` must hold one float32 per element. Otherwise,
/// an operation throws std::invalid_argument, and nothing is sent. A client that was moved from
/// throws std::logic_error.
class store_client {
public:
  using ranges = std::vector<range>;

  /// A client of servers in the same actor system. The servers must outlive the client.
  static store_client in_one_system(caf::actor_system& sys, std::span<const store_host> servers);

  /// Connects to the servers at `options.addresses`, and blocks until all are connected. The system
  /// must have loaded `caf::io::middleman`. Throws input_error if an option is invalid, and
  /// store_error if a server cannot be reached in time or has different options.
  static store_client connect(caf::actor_system& sys, const store_options& options);

  store_client(store_client&& other) noexcept;
  store_client& operator=(store_client&& other) noexcept;
  /// Operations without an answer may still take effect.
  ~store_client();

  /// The servers update their values by their rule.
  store_ticket push(const ranges& where, payload values) {
    return start(store_work::push, where, std::move(values));
  }
  /// Sets values, for example the initial ones.
  store_ticket assign(const ranges& where, payload values) {
    return start(store_work::assign, where, std::move(values));
  }
  store_ticket pull(const ranges& where) { return start(store_work::pull, where, {}); }
  /// A push followed by a pull of the same ranges, with one message to each server and one back.
  store_ticket push_pull(const ranges& where, payload values) {
    return start(store_work::push_pull, where, std::move(values));
  }

  /// Blocks until the servers have answered, and returns the result. Throws store_error; retry()
  /// can then repeat the operation. A ticket gives one result; a second call with the same ticket
  /// throws std::invalid_argument. You need not wait for every ticket: only the last 1,024 results
  /// are kept.
  store_result wait(store_ticket ticket);

  /// After a store_error: connects again to the failed servers and repeats all operations that they
  /// have not answered. Then call wait() again for each of these operations. Throws store_error if
  /// a server fails again.
  void retry();

  std::size_t servers() const;

private:
  class state;

  explicit store_client(std::unique_ptr<state> x);

  state& own_state() const;
  store_ticket start(store_work what, const ranges& where, payload values);

  std::unique_ptr<state> state_;
};

} // namespace troupe
