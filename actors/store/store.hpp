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

// The interface of a parameter store. Servers hold float32 values. Clients push values to the
// servers and pull values from them.
//
// The store has n elements. Each server holds an equal part of them, in order. An operation names
// ranges of elements. The client sends it to the servers that hold these elements.
//
// Order. Each server executes the operations of a client in the order of the client's calls. It
// executes each operation as a whole. So a pull sees all earlier pushes of the same client, and
// never a part of a push. Operations of different clients take effect in any order. Servers do not
// wait for each other: a pull from two servers may see another client's push at only one of them.
//
// Errors. A server fails if it dies, if its connection breaks, or if it does not answer within the
// deadline. wait() then throws a store_error that names the server, at the latest after twice the
// deadline. After that, each operation at this server throws the same error. Operations at other
// servers continue. An operation without an answer may or may not have taken effect. retry()
// connects again and repeats the operations without an answer, in order. Each of them takes effect
// exactly once, but a repeated pull may also see later pushes. If the server has restarted, its
// values are lost, and retry() throws.
//
// Buffers. Servers in the same process or on the same host read pushed values without a copy. Do
// not write to the pushed values until wait() has returned and payload::unique() is true. Do not
// write to pulled values at all, because a server may read the same memory. While the client holds
// them, the server needs other memory for its next update.
//
// Threads. Only one thread at a time may use a store_client. A program with many threads makes a
// client for each thread. If a client was made by connect(), wait() polls for messages, and sleeps
// only after 100 microseconds without a message. Any thread may make and destroy a store_host. Do
// not use store_client and store_host in an actor that shares its thread with other actors, because
// their calls block.

namespace troupe {

/// Options of a store. They must be the same for clients and servers, except for `rule` and
/// `connect_timeout`.
struct store_options {
  /// Number of elements of the whole store.
  std::size_t elements = 0;
  /// For processes: the address at which each server listens, "host:port". There are as many
  /// servers as addresses.
  std::vector<std::string> addresses;
  /// How processes exchange messages. `automatic`: processes on one host share memory, and others
  /// use TCP.
  peer_host_options::transport transport = peer_host_options::transport::automatic;
  /// How long a client waits for an answer.
  std::chrono::milliseconds deadline{10'000};
  /// How long connect() and retry() wait for the servers.
  std::chrono::milliseconds connect_timeout{30'000};
  /// How pushed values change a server's values.
  store_rule rule;
};

/// The reason why an operation has no result.
struct store_failure {
  /// link_lost: the server has died, or its connection broke. timed_out: the server did not answer
  /// within the deadline. fenced: the server has restarted and lost its values. malformed: the
  /// server has different options, or refuses an operation. join_refused: the server refuses this
  /// client. interrupted: the server is ending.
  errc code = errc::none;
  std::size_t server = 0;
  /// The time of the server's last answer. If it has not answered: the time when the client
  /// connected to it.
  std::chrono::steady_clock::time_point last_heard;
  /// The fields above as a text for people.
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
  /// Starts all servers of a store, for clients in the same actor system. The option `addresses` is
  /// not used. Throws input_error if an option is invalid.
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
  /// For each server: the version of its values when it answered. This is the number of pushes and
  /// assignments, of all clients, that the server had applied. 0 for a server that holds none of
  /// the operation's elements.
  std::vector<std::uint64_t> versions;
};

/// A client of a store. The comment at the top of this file explains its guarantees.
///
/// An operation returns a ticket for wait(). It returns at once, unless too much work of this
/// client waits for a server's answer. The limits (store_window) are 64 operations and, for the
/// bytes of their values, twice the bytes that the server holds plus 1 MiB.
///
/// Ranges must ascend and must not overlap, and `values` must hold one float32 per element.
/// Otherwise, an operation throws std::invalid_argument and sends nothing. The functions of a
/// client that was moved from throw std::logic_error.
class store_client {
public:
  using ranges = std::vector<range>;

  /// Makes a client of servers in the same actor system. The servers must outlive the client.
  static store_client in_one_system(caf::actor_system& sys, std::span<const store_host> servers);

  /// Connects to the servers at `options.addresses`, and blocks until all are connected. The system
  /// must have loaded `caf::io::middleman`. Throws input_error if an option is invalid, and
  /// store_error if a server cannot be reached in time or has different options.
  static store_client connect(caf::actor_system& sys, const store_options& options);

  store_client(store_client&& other) noexcept;
  store_client& operator=(store_client&& other) noexcept;
  /// Ends the client. Operations without an answer may still take effect.
  ~store_client();

  /// Sends values to the servers. They change their own values by store_rule: they add the pushed
  /// values, or use them as gradients.
  store_ticket push(const ranges& where, payload values) {
    return start(store_work::push, where, std::move(values));
  }
  /// Sets the servers' values, for example to initial values.
  store_ticket assign(const ranges& where, payload values) {
    return start(store_work::assign, where, std::move(values));
  }
  store_ticket pull(const ranges& where) { return start(store_work::pull, where, {}); }
  /// A push followed by a pull of the same ranges. Each server gets one message and sends one
  /// answer.
  store_ticket push_pull(const ranges& where, payload values) {
    return start(store_work::push_pull, where, std::move(values));
  }

  /// Blocks until the servers have answered, and returns the result. A second call with the same
  /// ticket throws std::invalid_argument. You need not wait for every ticket, but only the last
  /// 1,024 results are kept.
  /// @throws store_error if a server fails; retry() can then repeat the operation
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
