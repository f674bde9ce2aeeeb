#pragma once

#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <map>
#include <utility>

namespace troupe {

/// Stores gradients that were pushed to a shard but not committed. They have had no effect and can
/// be dropped. A worker has one gradient in transit at a time, so a newer gradient replaces an
/// older one. Therefore memory is bounded by one gradient per incarnation (one start of a worker).
class staged_gradients {
public:
  /// Ignores a gradient that is older than the stored one.
  void put(const proto::GradientId& id, payload gradient);

  bool has(const proto::GradientId& id) const;

  /// Removes and returns the gradient; empty if it has not arrived.
  payload take(const proto::GradientId& id);

  /// Drops this incarnation's gradient.
  void drop(std::uint32_t worker, std::uint64_t incarnation);

private:
  struct entry {
    std::uint64_t sequence = 0;
    bool here = false;
    payload gradient;
  };

  std::map<std::pair<std::uint32_t, std::uint64_t>, entry> entries_;
};

} // namespace troupe
