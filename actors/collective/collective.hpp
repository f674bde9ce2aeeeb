#pragma once

#include "actors/collective/collective_member.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// The interface for programs that add up vectors of their threads or processes (all-reduce).

namespace troupe {

/// Options of a collective. They must be the same on all ranks, except for `rank`.
struct collective_options {
  /// For processes: the rank of this process, and the address at which each rank listens,
  /// "host:port". There are as many ranks as addresses.
  std::size_t rank = 0;
  std::vector<std::string> addresses;
  /// How long connect() waits for the other ranks.
  std::chrono::milliseconds connect_timeout{30'000};
  /// True if processes on the same host read each other's vectors in shared memory. False if they
  /// use TCP.
  bool share_memory = true;
  /// The schedule of all vectors. If absent, schedule_for() chooses one for each vector. The choice
  /// depends on the length, the number of ranks, and whether all ranks read each other's memory.
  /// Ranks read each other's memory if they are threads, or if `share_memory` is true and all
  /// addresses have the same host. All ranks make the same choice.
  std::optional<all_reduce_schedule> schedule;
  /// See member_options.
  std::size_t chunk_bytes = std::size_t{256} << 10;
  std::size_t max_bytes = std::size_t{16} << 30;
  std::chrono::milliseconds deadline{10'000};
};

/// Thrown if an all-reduce fails.
class collective_error : public std::runtime_error {
public:
  explicit collective_error(collective_failure failure);
  ~collective_error() override;

  const collective_failure& failure() const noexcept { return failure_; }

private:
  collective_failure failure_;
};

/// One rank of a group that adds up vectors (all-reduce). The ranks are threads of one program, or
/// processes. Each process has its own actor system, which must be prepared by `configure`.
///
/// Only one thread at a time may use this object, but any thread may use the actor `member()`. The
/// destructor ends the actor and waits for its end, so destroy this object before the actor system.
/// Once this object is destroyed, an all-reduce of the other ranks fails if it needs this rank. An
/// object that was moved from can only be assigned to and destroyed. Its other functions throw
/// std::logic_error.
class collective {
public:
  /// Makes all ranks of a group in one actor system. Element r is for the thread with rank r. The
  /// options `rank` and `addresses` are not used. Throws input_error if `ranks` or an option is
  /// invalid.
  static std::vector<collective> in_one_system(caf::actor_system& sys, std::size_t ranks,
                                               const collective_options& options = {});

  /// Joins the group of processes at `options.addresses`. Blocks until all ranks have joined, so do
  /// not call it from an actor. The system must have loaded `caf::io::middleman`. Throws
  /// input_error if an option is invalid or this process cannot listen at its address. Throws
  /// collective_error with the code timed_out if a rank has not joined in time, and join_refused if
  /// another process has joined with this rank.
  static collective connect(caf::actor_system& sys, const collective_options& options);

  collective(collective&& other) noexcept;
  collective& operator=(collective&& other) noexcept;
  ~collective();

  std::size_t rank() const;
  std::size_t ranks() const;

  /// The actor of this rank. Actors of the program can send it a request `all_reduce`.
  collective_actor member() const;

  /// Returns the sum of the vectors of all ranks. Blocks until the sum is available. If the ranks
  /// are processes and this host has a processor for each of its ranks, the thread polls for
  /// messages, and sleeps only after 100 microseconds without a message. Other ranks read `values`
  /// without a copy, so nobody may write to `values` until these ranks have read it (see the struct
  /// all_reduce).
  /// @throws collective_error if the all-reduce fails
  /// @throws std::invalid_argument if the size is not a multiple of the element size, or if
  /// `values` is not aligned or longer than max_bytes
  payload all_reduce(payload values, element_kind kind);

  /// Replaces x with the sum of the vectors of all ranks. Blocks until the sum is available. Copies
  /// x into a buffer, and the sum back into x. After a collective_error, x is unchanged.
  void all_reduce(std::span<float> x);
  void all_reduce(std::span<double> x);

private:
  class state;

  explicit collective(std::unique_ptr<state> x);
  state& own_state() const;

  std::unique_ptr<state> state_;
};

} // namespace troupe
