#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/synchronizer.hpp"

#include <cstdint>

namespace troupe {

/// The weights after an epoch: all parameters as one flat vector, float32, in the order of
/// `job_context::parameters()`. The payload shares its memory with the evaluation.
struct epoch_weights {
  /// The number of the epoch, counted from 1.
  std::uint32_t epoch = 0;
  /// Number of updates since the initial weights.
  std::uint64_t version = 0;
  payload weights;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::epoch_weights)

namespace troupe {

/// The actor that receives the weights.
using weights_listener = caf::typed_actor<rpc<void, epoch_weights>>;

} // namespace troupe
