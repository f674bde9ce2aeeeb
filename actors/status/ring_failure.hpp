#pragma once

#include "messages/names.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// Where a rank of a ring is.
struct ring_position {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  /// The newest step to which this rank has contributed. Steps count from 0 in each run.
  std::uint64_t step = 0;
  /// The first bucket that has this rank's part and waits for others: the number of its collective
  /// (ring_reductions). Nothing if this rank waits for no other.
  std::optional<std::uint32_t> bucket = std::nullopt;
  /// The time of the newest contribution or piece of another rank.
  std::chrono::steady_clock::time_point since = {};
};

/// Why a rank of a ring could not continue: another worker is lost, because it has died, does not
/// answer, or cannot be reached.
struct ring_failure {
  task_name lost;
  /// The rank of the lost worker.
  std::size_t lost_rank = 0;
  /// The surviving rank that reports this, and what it waits for: see ring_position.
  std::size_t rank = 0;
  std::size_t ranks = 1;
  std::uint64_t step = 0;
  std::optional<std::uint32_t> bucket = std::nullopt;
  /// How long nothing had arrived at this rank.
  std::chrono::milliseconds waited{0};
};

/// For the operator: "rank 0 of 3 lost rank 2 (worker/2) in step 7; it has waited for bucket 1
/// since 412 ms".
std::string to_string(const ring_failure& x);

} // namespace troupe
