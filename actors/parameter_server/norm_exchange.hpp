#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

/// Collects the parts of all shards for a gradient's norm, by step. A part is the sum of squares
/// over the shard's range. A shard updates only when it has all parts. Therefore other shards are
/// at most one step ahead, and their parts of the next step wait here.
///
/// The parts are added in order of the shards, so the norm has the same bits on every shard.
class norm_exchange {
public:
  explicit norm_exchange(std::size_t shards) : shards_(shards) {}

  /// Adds a shard's part. Returns false if the part is impossible: the shard is unknown, or the
  /// step is more than one ahead of `now` (this shard's step). A part of an earlier step, or a part
  /// that has already arrived, is ignored as a repetition.
  bool add(std::uint64_t now, std::uint64_t step, std::size_t shard, double squares);

  bool has(std::uint64_t step, std::size_t shard) const;
  bool complete(std::uint64_t step) const;

  /// The sum of all parts of a complete step.
  double sum(std::uint64_t step) const;

  /// Drops all steps up to this one.
  void forget(std::uint64_t step);

private:
  std::size_t shards_;
  std::map<std::uint64_t, std::vector<std::optional<double>>> steps_;
};

} // namespace troupe
