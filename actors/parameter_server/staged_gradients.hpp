#pragma once

#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <map>
#include <utility>

namespace troupe {

/// Gradients that were pushed to a shard and not committed yet: nothing was done with them, and
/// they can be dropped. A worker has one on its way at a time, so a newer one takes the place of an
/// older: memory is bounded by one gradient per incarnation.
class staged_gradients {
public:
  /// An older one than what is here already is ignored.
  void put(const proto::GradientId& id, payload gradient);

  bool has(const proto::GradientId& id) const;

  /// Removes it; empty where it is not here.
  payload take(const proto::GradientId& id);

  /// Of this incarnation.
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
