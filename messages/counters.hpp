#pragma once

#include <compare>
#include <cstdint>

namespace troupe {

/// A count that only grows. Each kind of count is a separate type, so the compiler refuses to
/// compare a step with a version.
template <class Tag>
struct counter {
  std::uint64_t value = 0;

  constexpr counter next() const noexcept { return {value + 1}; }
  friend constexpr auto operator<=>(const counter&, const counter&) = default;
};

/// Number of updates of the weights, including those of earlier runs.
using weights_version = counter<struct weights_version_tag>;

/// The number of a worker's step. Its synchronizer (synchronizer.hpp) chooses the numbers.
using step_number = counter<struct step_number_tag>;

/// The clock of a worker: it counts the worker's batches in this run. A batch is counted when its
/// gradient has an outcome (applied, rejected, ...).
using worker_clock = counter<struct worker_clock_tag>;

/// The number of a worker's gradient. The first is 1.
using gradient_sequence = counter<struct gradient_sequence_tag>;

} // namespace troupe
