#pragma once

#include "actors/model/job_context.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Divides the weights into fragments, and decides after which step LOCAL_SGD averages each
/// fragment (Streaming DiLoCo, Douillard et al. 2025, arXiv 2501.18512).
///
/// The F fragments are contiguous ranges of the parameters. Their lengths differ by at most one
/// element, so each average sends the same number of bytes, even if a layer is large. (In the
/// paper, a fragment consists of whole layers, preferably not of neighbouring ones.) Let H be
/// local_sgd.every. Fragment f is averaged after step floor((f + 1) H / F), and then after every
/// further H steps. After a step with a checkpoint or an evaluation, all weights are averaged at
/// once instead, so that all replicas are equal.
///
/// An average adds up one vector per piece. A piece is the part of a fragment that lies in one
/// bucket. This is a plain object, not an actor.
class weight_fragments {
public:
  explicit weight_fragments(const job_context& context);

  /// The pieces of all fragments, as ranges of the parameters. If there is only one fragment, the
  /// pieces are the buckets.
  const std::vector<range>& pieces() const noexcept { return pieces_; }

  /// All pieces, as positions in pieces().
  range all() const noexcept { return {0, pieces_.size()}; }

  /// The pieces to average after this step, as positions in pieces(). Steps are numbered from 1.
  /// Nothing if no average is due.
  std::optional<range> due(std::uint64_t step) const;

private:
  std::uint64_t every_;
  /// The intervals of checkpoints and evaluations, in steps: after multiples of them, all weights
  /// are averaged. A 0 has no effect.
  std::vector<std::uint64_t> captures_;
  std::vector<range> pieces_;
  /// The pieces of each fragment, as positions in `pieces_`.
  std::vector<range> fragments_;
};

} // namespace troupe
