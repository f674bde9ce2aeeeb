#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

/// Collects what all shards say of the norm of one gradient, by step: each has the sum of squares
/// of its own range. A shard makes no update before it knows the parts of all, so the others are at
/// most one step ahead of it: their parts of the next step wait here.
///
/// The parts are added in order of the shards, so the norm has the same bits at all of them.
class norm_exchange {
public:
  explicit norm_exchange(std::size_t shards) : shards_(shards) {}

  /// A shard's part. False where it cannot be: no such shard, or a step that is more than one ahead
  /// of `now`, the step that this shard is at. One of an earlier step, or that is there already, is
  /// a repetition.
  bool add(std::uint64_t now, std::uint64_t step, std::size_t shard, double squares);

  bool has(std::uint64_t step, std::size_t shard) const;
  bool complete(std::uint64_t step) const;

  /// The sum of all parts of a step that is complete.
  double sum(std::uint64_t step) const;

  /// Steps up to this one are over.
  void forget(std::uint64_t step);

private:
  std::size_t shards_;
  std::map<std::uint64_t, std::vector<std::optional<double>>> steps_;
};

} // namespace troupe
