#pragma once

#include "actors/collective/collective_member.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// Everything that a program needs to add up vectors of its threads or processes.

namespace troupe {

/// All ranks need the same options, except for `rank`.
struct collective_options {
  /// For processes: the rank of this one, and the address where each listens, "host:port". There
  /// are as many ranks as addresses.
  std::size_t rank = 0;
  std::vector<std::string> addresses;
  /// How long connect() waits for the others.
  std::chrono::milliseconds connect_timeout{30'000};
  /// Processes of one host read each other's vectors in shared memory; otherwise they use TCP.
  bool share_memory = true;
  /// Absent: direct if the ranks are threads, or if they share memory and all addresses have the
  /// same host; otherwise by the length of each vector (schedule_for). The addresses and the
  /// lengths are the same at all ranks, so all choose the same.
  std::optional<all_reduce_schedule> schedule;
  /// See member_options.
  std::size_t chunk_bytes = std::size_t{256} << 10;
  std::size_t max_bytes = std::size_t{16} << 30;
  std::chrono::milliseconds deadline{10'000};
};

/// An all-reduce failed.
class collective_error : public std::runtime_error {
public:
  explicit collective_error(collective_failure failure);
  ~collective_error() override;

  const collective_failure& failure() const noexcept { return failure_; }

private:
  collective_failure failure_;
};

/// One rank of a group that adds up vectors (all-reduce). Ranks are threads of one program, or
/// processes, each with an actor system of its own that has gone through `configure`.
///
/// Only one thread may use it at a time; any thread may use the actor `member()`. The destructor
/// ends the member and waits for its end, so destroy it before the actor system. Other ranks can
/// continue as long as they need nothing from this rank. One that was moved from can only be
/// assigned to and destroyed; its functions throw std::logic_error.
class collective {
public:
  /// All ranks of a group in one actor system; element r is for the thread with rank r. Throws
  /// input_error if `ranks` or an option makes no sense; rank and addresses are not used.
  static std::vector<collective> in_one_system(caf::actor_system& sys, std::size_t ranks,
                                               const collective_options& options = {});

  /// Joins the group of processes of `options.addresses`. Blocks until all ranks have joined, so do
  /// not call it from an actor. The system must have loaded `caf::io::middleman`. Throws
  /// input_error if an option makes no sense or this cannot listen at its address; collective_error
  /// timed_out if a rank has not joined in time, join_refused if another process has joined with
  /// this rank.
  static collective connect(caf::actor_system& sys, const collective_options& options);

  collective(collective&& other) noexcept;
  collective& operator=(collective&& other) noexcept;
  ~collective();

  std::size_t rank() const;
  std::size_t ranks() const;

  /// For actors of the program: send it a request `all_reduce`.
  collective_actor member() const;

  /// The sum of the vectors of all ranks; blocks until it is there. `values` is lent to the others
  /// without a copy (see all_reduce). Throws collective_error; std::invalid_argument if its size is
  /// not one of whole elements, if it is not aligned, or longer than max_bytes.
  payload all_reduce(payload values, element_kind kind);

  /// Replaces x by the sum of the vectors of all ranks, float32 or float64; blocks. Copies x into a
  /// buffer, and the sum back. After a collective_error x is as it was.
  void all_reduce(std::span<float> x);
  void all_reduce(std::span<double> x);

private:
  class state;

  explicit collective(std::unique_ptr<state> x);
  state& own_state() const;

  std::unique_ptr<state> state_;
};

} // namespace troupe
