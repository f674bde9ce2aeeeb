#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// The parts of the weights that LOCAL_SGD averages one after the other (Streaming DiLoCo,
/// Douillard et al. 2025, arXiv 2501.18512), and the steps after which they are averaged.
///
/// The F fragments are contiguous ranges of the parameters. Their lengths differ by at most one
/// element, so each average sends the same number of bytes, even if a layer is large. (The paper
/// uses whole layers, and prefers layers far apart for one fragment.) Let H be local_sgd.every.
/// Fragment f is averaged after step floor((f + 1) H / F), and then after every further H steps.
/// After a step with a checkpoint or an evaluation, all weights are averaged at once instead, so
/// that all replicas are equal.
///
/// An average adds up one vector per piece. A piece is a part of a fragment, cut at the boundaries
/// of buckets. This is a plain object, not an actor.
class weight_fragments {
public:
  explicit weight_fragments(const job_context& context);

  /// Ranges of the parameters, by fragment and bucket. If there is only one fragment, they are the
  /// buckets.
  const std::vector<range>& pieces() const noexcept { return pieces_; }

  /// The pieces of all weights, as positions in pieces().
  range all() const noexcept { return {0, pieces_.size()}; }

  /// The pieces to average after this step, as positions in pieces(). Steps are numbered from 1.
  /// Nothing if no average is due.
  std::optional<range> due(std::uint64_t step) const;

private:
  std::uint64_t every_;
  /// All weights are averaged after multiples of these numbers of steps. A 0 has no effect.
  std::vector<std::uint64_t> captures_;
  std::vector<range> pieces_;
  /// The pieces of each fragment.
  std::vector<range> fragments_;
};

} // namespace troupe
