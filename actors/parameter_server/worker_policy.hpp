#pragma once

#include "messages/proto/wire.pb.h"
#include "messages/synchronizer.hpp"

#include <span>

namespace troupe {

/// How a protocol treats one worker's gradients before the shards apply them. Each worker has its
/// own object, which is not an actor. Only the worker's synchronizer calls it.
class worker_policy {
public:
  virtual ~worker_policy() = default;

  /// Takes the weights from which the next gradient is computed. The ranges cover the whole
  /// parameter vector.
  virtual void read(std::span<const weight_range> weights) = 0;

  /// Completes the header of a commit with the scaling that the shards apply to this gradient.
  /// @param header has samples and gradient_norm already. All shards get this header, each with its
  /// own base_version
  /// @param gradient the whole gradient, finite, summed over header.samples(); empty if
  /// header.samples() is 0
  /// @param known the newest statistics from shard 0
  virtual void complete(proto::Commit& header, std::span<const float> gradient,
                        const proto::Pacing& known) = 0;
};

} // namespace troupe
