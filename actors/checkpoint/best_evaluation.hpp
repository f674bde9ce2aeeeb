#pragma once

#include <cstdint>

namespace troupe {

/// The evaluation with the smallest loss, and the number of evaluations since then. It serves early
/// stopping, and decides which weights are kept as the best. A checkpoint contains this struct, so
/// a resumed run continues the count.
struct best_evaluation {
  double loss = 0;
  /// Version of the weights; 0 if nothing was evaluated yet.
  std::uint64_t step = 0;
  /// Number of the epoch, from 1.
  std::uint32_t epoch = 0;
  /// Number of evaluations after the best one.
  std::uint32_t since = 0;
  /// The newest version of the weights that add() has counted.
  std::uint64_t newest = 0;

  /// Counts an evaluation. A version that was counted before is ignored, because a run that
  /// continues from a checkpoint may evaluate the version again.
  /// @param min_delta a new loss is better only if it is lower by more than this
  /// @returns true if this evaluation is the best so far
  bool add(double new_loss, std::uint64_t version, std::uint32_t new_epoch, double min_delta) {
    if (step > 0 && version <= newest)
      return false;
    newest = version;
    if (step > 0 && !(new_loss < loss - min_delta)) {
      ++since;
      return false;
    }
    loss = new_loss;
    step = version;
    epoch = new_epoch;
    since = 0;
    return true;
  }

  bool operator==(const best_evaluation&) const = default;
};

} // namespace troupe
