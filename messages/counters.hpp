#pragma once

#include <compare>
#include <cstdint>

namespace troupe {

/// A count that only grows. Each kind is a type of its own, so that a step is never compared with a
/// version.
template <class Tag>
struct counter {
  std::uint64_t value = 0;

  constexpr counter next() const noexcept { return {value + 1}; }
  friend constexpr auto operator<=>(const counter&, const counter&) = default;
};

/// Updates of the weights, including those of earlier runs.
using weights_version = counter<struct weights_version_tag>;

/// A step of a worker, as its synchronizer counts them.
using step_number = counter<struct step_number_tag>;

/// Batches whose gradients were decided, of one worker in this run.
using worker_clock = counter<struct worker_clock_tag>;

/// A worker's gradients, from 1.
using gradient_sequence = counter<struct gradient_sequence_tag>;

} // namespace troupe
