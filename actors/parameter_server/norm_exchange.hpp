#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

/// Collects all shards' parts of a gradient's norm, by step: each part is the sum of squares of the
/// shard's range. A shard updates only when it knows the parts of all, so other shards are at most
/// one step ahead of it: their parts of the next step wait here.
///
/// The parts are added in order of the shards, so the norm has the same bits on every shard.
class norm_exchange {
public:
  explicit norm_exchange(std::size_t shards) : shards_(shards) {}

  /// Adds a shard's part. False if it is impossible: no such shard, or a step more than one ahead
  /// of `now`, this shard's step. A part of an earlier step, or one that is already here, is a
  /// repetition.
  bool add(std::uint64_t now, std::uint64_t step, std::size_t shard, double squares);

  bool has(std::uint64_t step, std::size_t shard) const;
  bool complete(std::uint64_t step) const;

  /// The sum of all parts of a complete step.
  double sum(std::uint64_t step) const;

  /// Forgets the steps up to this one.
  void forget(std::uint64_t step);

private:
  std::size_t shards_;
  std::map<std::uint64_t, std::vector<std::optional<double>>> steps_;
};

} // namespace troupe
