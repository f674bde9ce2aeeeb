#pragma once

#include "actors/parameter_server/version_pool.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// Decides when a worker may read a shard's weights, and which version. The shard's reader asks it
/// for each pull of a worker. Thread-safe.
class read_gate {
public:
  virtual ~read_gate() = default;

  struct answer {
    /// The step that the weights are for.
    std::uint64_t clock = 0;
    /// Absent if the worker must wait. The shard notifies the worker when a pull can be answered.
    std::optional<version_pool::snapshot> weights;
    /// The workers that the reading worker waits for, and the number of steps by which the slowest
    /// of them is behind.
    std::vector<std::uint32_t> slow;
    std::uint64_t behind = 0;
  };

  /// Sets the source of versions. Called once, before the first pull.
  virtual void open(std::shared_ptr<const version_pool> versions) = 0;

  virtual answer read(const proto::Pull& x) = 0;
};

} // namespace troupe
