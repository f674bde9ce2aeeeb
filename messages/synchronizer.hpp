#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/counters.hpp"
#include "messages/loss_scale_state.hpp"
#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"
#include "messages/residence.hpp"

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The central interface of the design: the messages between a worker and its synchronizer are the
// same for every protocol.
//
//   worker                                synchronizer
//     |-- acquire(clock, batch, rows) -------->|   pulls from shards, or waits for the ring
//     |<-------- acquired(step, ranges) -------|   as they arrive: forward starts on the first
//     |<-------- acquired(..., last) ----------|
//     |-- contribute(step, range, gradient) -->|   last layer first, while backward runs
//     |-- contribute ... --------------------->|
//     |-- commit(step, loss, norm, finite) --->|   nothing takes effect before this
//     |<-------- committed(outcome, samples) --|
//
// All are one-way messages within one process, so a worker that waits for others never has a
// pending request. If the synchronizer cannot continue, it sends `broken` instead.

namespace troupe {

/// The weights that a batch reads. Its gradient is 0 for all other weights. Null: all weights.
using batch_rows = std::shared_ptr<const proto::Selection>;

/// The worker has read its next batch and requests weights for it. `lease` and `batch` identify the
/// samples and become attributes of the gradient. If this worker is lost, other workers continue
/// after these samples.
struct acquire {
  worker_clock clock;
  std::uint64_t lease = 0;
  std::uint64_t batch = 0;
  /// Weights outside of `rows` need not be up to date; the gradient is 0 there.
  batch_rows rows;
};

/// Weights [begin, begin + data.size() / 4) of the flat parameter vector, float32. They stay the
/// same until the step is over, and while the payload is held.
struct weight_range {
  std::uint64_t begin = 0;
  weights_version version;
  payload data;
};

/// Some ranges of the weights, in ascending order. A step has one or more of these messages, in any
/// order; together they cover the parameter vector. The synchronizer numbers the steps: after a
/// rejection it may skip numbers.
struct acquired {
  step_number step;
  std::vector<weight_range> ranges;
  /// The last of these messages in the step.
  bool last = true;
  /// If not `host`, there are no ranges: the worker's GPU holds the newest weights.
  residence where = residence::host;
};

/// Gradient of parameters [begin, end), summed over the worker's samples. It is final, and the step
/// reads no weight of this range again. `gradient` is the whole flat gradient vector; only the
/// ranges contributed so far may be read. It is lent until its last reference is gone. The
/// contributions of a step cover the vector, each parameter once.
///
/// Zero samples are legal: the worker had no more data and contributes zeros.
///
/// With residence::gradients_on_gpu, `gradient` is empty.
struct contribute {
  step_number step;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t samples = 0;
  payload gradient;
};

/// The step is computed, and all its contributions were sent before this message. They may now take
/// effect.
struct commit {
  step_number step;
  std::uint64_t samples = 0;
  /// Summed over the samples.
  double loss_sum = 0;
  /// Sum of squares of the contributed gradient (summed over samples), without statistics.
  double squared_norm = 0;
  /// The worker has no other batch to train yet: its next `acquire` may take long.
  bool pauses = false;
  /// The worker's loss scale after this gradient, if it has one.
  std::optional<loss_scale_state> loss_scale = std::nullopt;

  /// Loss and gradient are finite. If not, no part of the gradient may be applied anywhere.
  bool finite() const noexcept { return std::isfinite(loss_sum) && std::isfinite(squared_norm); }
};

/// The worker will not compute the step that it acquired, and has contributed nothing to it. Also
/// answered by `committed`.
struct abandon {
  step_number step;
};

/// The outcome of the step's gradient. `samples` went into the update: those of all workers in
/// synchronous protocols, only this worker's in asynchronous ones.
struct committed {
  step_number step;
  proto::Outcome outcome = proto::OUTCOME_UNSET;
  std::uint64_t staleness = 0;
  std::uint64_t samples = 0;
  /// If the job clips by norm: the norm of the update's gradient (its mean over the samples) before
  /// clipping.
  std::optional<double> gradient_norm = std::nullopt;
  /// The gradient was scaled down because it was much larger than others.
  bool limited = false;
};

/// The synchronizer cannot continue; the run fails with this text.
struct broken {
  std::string reason;
  /// The cause is a gradient that is not finite.
  bool not_finite = false;
  /// The cause is the loss of this task.
  std::optional<task_name> lost = std::nullopt;
};

} // namespace troupe

#define TROUPE_LOCAL_MESSAGE(type_name)                                                            \
  template <>                                                                                      \
  struct troupe::is_local_message<type_name> : std::true_type {};                                  \
  CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type_name)

TROUPE_LOCAL_MESSAGE(troupe::acquire)
TROUPE_LOCAL_MESSAGE(troupe::acquired)
TROUPE_LOCAL_MESSAGE(troupe::contribute)
TROUPE_LOCAL_MESSAGE(troupe::commit)
TROUPE_LOCAL_MESSAGE(troupe::abandon)
TROUPE_LOCAL_MESSAGE(troupe::committed)
TROUPE_LOCAL_MESSAGE(troupe::broken)

namespace troupe {

/// The messages that every protocol's synchronizer handles.
using synchronizer_actor = caf::typed_actor<rpc<void, acquire>, rpc<void, contribute>,
                                            rpc<void, commit>, rpc<void, abandon>>;

} // namespace troupe
