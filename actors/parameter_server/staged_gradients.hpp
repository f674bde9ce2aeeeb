#pragma once

#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <map>
#include <utility>

namespace troupe {

/// Gradients that were pushed to a shard and not committed. They have had no effect and can be
/// dropped. A worker has one in transit at a time, so a newer one replaces an older: memory is
/// bounded by one gradient per incarnation.
class staged_gradients {
public:
  /// Ignores a gradient older than the one that is here.
  void put(const proto::GradientId& id, payload gradient);

  bool has(const proto::GradientId& id) const;

  /// Removes and returns the gradient; empty if it is not here.
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
