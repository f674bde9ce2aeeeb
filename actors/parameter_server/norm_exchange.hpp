#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

/// Computes the norm of a whole gradient from the parts of all shards. A part is the sum of squares
/// over one shard's range. Parts are stored by step, because another shard may be one step ahead
/// and send its part early. It cannot be two steps ahead: each update needs the parts of all
/// shards.
///
/// The parts are added in order of the shards, so the norm has the same bits on every shard.
class norm_exchange {
public:
  explicit norm_exchange(std::size_t shards) : shards_(shards) {}

  /// Adds a shard's part. Returns false if the part is invalid: the shard is unknown, or the step
  /// is more than one ahead of `now` (this shard's step). A part of an earlier step, or a part that
  /// has already arrived, is ignored as a repetition.
  bool add(std::uint64_t now, std::uint64_t step, std::size_t shard, double squares);

  bool has(std::uint64_t step, std::size_t shard) const;
  bool complete(std::uint64_t step) const;

  /// The sum of all parts: the square of the norm. The step must be complete.
  double sum(std::uint64_t step) const;

  /// Drops the parts of all steps up to and including this step.
  void forget(std::uint64_t step);

private:
  std::size_t shards_;
  std::map<std::uint64_t, std::vector<std::optional<double>>> steps_;
};

} // namespace troupe
