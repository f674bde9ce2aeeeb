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

// A parameter store: servers hold float32 values, and clients push to them and pull from them.
// Everything that a program needs.
//
// The store has elements 0 to n - 1, and each server an equal part of them, in order. An operation
// names ranges of elements, and touches the servers that hold them.
//
// Order. Operations of one client take effect at each server in the order of its calls, each as a
// whole: a pull there sees all that was pushed before, and no part of a push under way. So a pull
// of a client sees all its earlier pushes. Operations of different clients take effect in any
// order. Different servers do not wait for each other: a pull of two servers may see a push of
// another client at one of them alone.
//
// Errors. If a server dies, its connection breaks, or it does not answer within the deadline,
// wait() throws a store_error that names it, within twice the deadline. From then on, each
// operation that touches this server throws the same error. Operations at other servers go on.
// Nobody knows whether an operation without an answer took effect. retry() connects again and sends
// all of them again, in order: each takes effect once. But a pull that is sent again may also see
// later pushes. If the server has lost its values meanwhile, retry() says so.
//
// Buffers. Pushed values are lent to the servers without a copy, within a process and between
// processes of one host: nobody writes to them until wait() has returned, and payload::unique() is
// true. Pulled values belong to the client, which only reads them; a server may read the same
// memory. As long as the client holds them, the server needs other memory for its next update.
//
// Threads. One thread at a time uses a store_client. A program with many threads makes a client for
// each. store_host may be made and destroyed by any thread. Do not call them from an actor that
// shares its thread with others.

namespace troupe {

/// Clients and servers need the same ones, except for `rule` and `connect_timeout`.
struct store_options {
  /// Of the whole store.
  std::size_t elements = 0;
  /// For processes: where each server listens, "host:port". There are as many servers as addresses.
  std::vector<std::string> addresses;
  /// automatic: processes of one host share memory, others use TCP.
  peer_host_options::transport transport = peer_host_options::transport::automatic;
  /// How long a client waits for an answer.
  std::chrono::milliseconds deadline{10'000};
  /// How long a client looks for the servers, also in retry().
  std::chrono::milliseconds connect_timeout{30'000};
  /// What servers do with pushed values.
  store_rule rule;
};

/// Why an operation has no result.
struct store_failure {
  /// link_lost: the server has died, or its connection broke. timed_out: no answer within the
  /// deadline. fenced: it has started again, and lost its values. malformed: it has other options,
  /// or refuses an operation. join_refused: it does not want this client. interrupted: it ends.
  errc code = errc::none;
  std::size_t server = 0;
  /// Its last answer, or the begin of the connection.
  std::chrono::steady_clock::time_point last_heard;
  /// For people: all of that.
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

/// A server of a store in this process; the destructor ends it. It has a thread of its own. Its
/// values begin at 0.
class store_host {
public:
  /// All servers of a store, for clients in the same actor system. Throws input_error if an option
  /// makes no sense; addresses are not used.
  static std::vector<store_host> in_one_system(caf::actor_system& sys, std::size_t servers,
                                               const store_options& options);

  /// Server number `index` of `options.addresses`, for clients in any process. The system must have
  /// loaded `caf::io::middleman`. Throws input_error if an option makes no sense, or if it cannot
  /// listen at its address.
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

/// An operation under way.
struct store_ticket {
  std::uint64_t number = 0;
};

/// What came of an operation.
struct store_result {
  /// Of a pull: the values of all ranges, one after another.
  payload values;
  /// By server: pushes and assignments of all clients that had taken effect there; 0 for servers
  /// that the operation does not touch.
  std::vector<std::uint64_t> versions;
};

/// Pushes to the servers of a store, and pulls from them. See above for what it guarantees.
///
/// An operation returns at once, with a ticket for wait(). If 64 operations or more bytes than a
/// server holds twice wait for answers of a server, it blocks until the server has answered the
/// first of them.
///
/// Ranges ascend, and do not overlap; std::invalid_argument otherwise, or if `values` does not hold
/// one float32 for each element. Then nothing was sent. A client that was moved from throws
/// std::logic_error.
class store_client {
public:
  using ranges = std::vector<range>;

  /// A client of servers in the same actor system, which live longer.
  static store_client in_one_system(caf::actor_system& sys, std::span<const store_host> servers);

  /// Connects to the servers of `options.addresses`, and blocks until they are there. The system
  /// must have loaded `caf::io::middleman`. Throws input_error if an option makes no sense;
  /// store_error if a server is not there in time, or has other options.
  static store_client connect(caf::actor_system& sys, const store_options& options);

  store_client(store_client&& other) noexcept;
  store_client& operator=(store_client&& other) noexcept;
  /// Operations without an answer may still take effect.
  ~store_client();

  /// Lets the servers update their values by their rule.
  store_ticket push(const ranges& where, payload values) {
    return start(store_work::push, where, std::move(values));
  }
  /// Sets values, such as those to begin with.
  store_ticket assign(const ranges& where, payload values) {
    return start(store_work::assign, where, std::move(values));
  }
  store_ticket pull(const ranges& where) { return start(store_work::pull, where, {}); }
  /// A push, and a pull of the same ranges after it, in one message to each server and back.
  store_ticket push_pull(const ranges& where, payload values) {
    return start(store_work::push_pull, where, std::move(values));
  }

  /// Blocks until the servers have answered. Throws store_error; the operation can then be sent
  /// again by retry(). A ticket is good for one result, std::invalid_argument after it. Results
  /// need not be waited for: only the last 1,024 of them are kept.
  store_result wait(store_ticket ticket);

  /// After a store_error: connects again to the servers that failed, and sends them all operations
  /// that they have not answered. Then wait() can be called again for each. Throws store_error if
  /// one fails again.
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
