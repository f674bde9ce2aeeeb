#pragma once

#include "kernels/range.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace troupe {

/// A worker's gradient of a shard's whole range.
struct shard_gradient {
  shard_gradient() = default;
  shard_gradient(payload x, std::shared_ptr<const range_list> where = nullptr) noexcept
    : values(std::move(x)), touched(std::move(where)) {}

  payload values;
  /// The gradient is 0 in all other elements. Positions are relative to the range. Null if this is
  /// not known.
  std::shared_ptr<const range_list> touched;
};

/// Stores gradients that were pushed to a shard but not committed. They have had no effect and can
/// be dropped. A worker has one gradient in transit at a time, so a newer gradient replaces an
/// older one. Therefore memory is bounded by one gradient per incarnation (one start of a worker).
class staged_gradients {
public:
  /// Ignores a gradient that is older than the stored one.
  void put(const proto::GradientId& id, shard_gradient gradient);

  bool has(const proto::GradientId& id) const;

  /// Removes and returns the gradient; empty if it has not arrived.
  shard_gradient take(const proto::GradientId& id);

  /// Drops this incarnation's gradient.
  void drop(std::uint32_t worker, std::uint64_t incarnation);

private:
  struct entry {
    std::uint64_t sequence = 0;
    bool here = false;
    shard_gradient gradient;
  };

  std::map<std::pair<std::uint32_t, std::uint64_t>, entry> entries_;
};

} // namespace troupe
