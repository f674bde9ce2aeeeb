#pragma once

#include "messages/names.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// The progress of a rank of a ring.
struct ring_position {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  /// The newest step to which this rank has contributed. Steps count from 0 in each run.
  std::uint64_t step = 0;
  /// The bucket for which this rank waits. A bucket is a part of the gradient that is added up in
  /// one collective (ring_reductions). This rank has contributed to the bucket, and other ranks
  /// have not yet. If it waits for several buckets, the first one. Nothing if it waits for no other
  /// rank.
  std::optional<std::uint32_t> bucket = std::nullopt;
  /// The time of this rank's newest contribution. If a piece from another rank arrived later, the
  /// time of the newest piece.
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
  /// Time that the rank has waited since it last received something.
  std::chrono::milliseconds waited{0};
};

/// For the operator: "rank 0 of 3 lost rank 2 (worker/2) in step 7; it has waited for bucket 1 for
/// 412 ms".
std::string to_string(const ring_failure& x);

} // namespace troupe
