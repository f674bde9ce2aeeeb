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
/// The F fragments are contiguous ranges of the parameters, as long as each other up to one
/// element. So each average sends as many bytes, however large a layer is. (The paper takes whole
/// layers, and prefers layers far apart for one fragment.) Fragment f is averaged after steps
/// floor((f + 1) H / F), H more, and so on, with H = local_sgd.every. After a step with a
/// checkpoint or an evaluation, all weights are averaged at once instead, so that these read equal
/// replicas.
///
/// The vectors of an average are its pieces: a fragment, cut where buckets meet. Plain state.
class weight_fragments {
public:
  explicit weight_fragments(const job_context& context);

  /// Ranges of the parameters, by fragment and bucket. One fragment: the buckets.
  const std::vector<range>& pieces() const noexcept { return pieces_; }

  /// The pieces, as positions in pieces(), of all weights.
  range all() const noexcept { return {0, pieces_.size()}; }

  /// The pieces to average after the worker's step with this number (the first one has number 1);
  /// nothing if no average is due.
  std::optional<range> due(std::uint64_t step) const;

private:
  std::uint64_t every_;
  /// Steps after which everything is averaged: multiples of these. 0: none.
  std::vector<std::uint64_t> captures_;
  std::vector<range> pieces_;
  /// The pieces of each fragment.
  std::vector<range> fragments_;
};

} // namespace troupe
