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
    /// The worker's step that uses the weights.
    std::uint64_t clock = 0;
    /// Absent if the worker must wait. The shard notifies the worker when it may pull again.
    std::optional<version_pool::snapshot> weights;
    /// If the worker must wait: the slower workers that it waits for. `behind` is the number of
    /// steps from the step of the slowest worker to `clock`.
    std::vector<std::uint32_t> slow;
    std::uint64_t behind = 0;
  };

  /// Sets the pool from which the versions are read. Called once, before the first pull.
  virtual void open(std::shared_ptr<const version_pool> versions) = 0;

  virtual answer read(const proto::Pull& x) = 0;
};

} // namespace troupe
