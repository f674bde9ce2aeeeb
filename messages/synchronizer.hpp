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

// The messages between a worker and its synchronizer: the actor that exchanges the worker's
// gradients and weights with other tasks. They are the same for every protocol.
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
// All these messages are one-way and stay within one process. A worker that waits for other workers
// therefore has no pending request that could time out. If the synchronizer cannot continue, it
// sends `broken` instead of its next message.

namespace troupe {

/// The weights that a batch reads; null if it reads all weights. For weights that the batch does
/// not read, its gradient is 0.
using batch_rows = std::shared_ptr<const proto::Selection>;

/// The worker has read its next batch and requests weights for it. `lease` and `batch` identify the
/// samples of the batch, and are sent with its gradient. If this worker is lost, the coordinator
/// learns from these two numbers which samples are trained, and other workers train the rest.
struct acquire {
  worker_clock clock;
  std::uint64_t lease = 0;
  std::uint64_t batch = 0;
  /// Weights outside of `rows` need not be up to date, because the gradient is 0 there.
  batch_rows rows;
};

/// Weights [begin, begin + data.size() / 4) of the flat parameter vector, float32. The values do
/// not change before the step is over, and not before all actors have released their copies of the
/// payload.
struct weight_range {
  std::uint64_t begin = 0;
  weights_version version;
  payload data;
};

/// Some ranges of the weights, in ascending order. A step has one or more of these messages, in any
/// order. Together they cover the parameter vector. The synchronizer chooses the number of the
/// step; after a rejected gradient, it may leave out numbers.
struct acquired {
  step_number step;
  std::vector<weight_range> ranges;
  /// True for the last of these messages in the step.
  bool last = true;
  /// If not `host`, there are no ranges: the worker's GPU holds the newest weights.
  residence where = residence::host;
};

/// The gradient of the parameters [begin, end), summed over the worker's samples. The worker does
/// not change these values any more, and in this step it does not read the weights of this range
/// again. `gradient` is the whole flat gradient vector. The receiver may read only the ranges
/// contributed so far. The worker does not write to this memory until all other references to it
/// are gone. Each parameter is in exactly one contribution of the step.
///
/// If the worker has no more data, `samples` is 0, and the gradient is zero.
///
/// With residence::gradients_on_gpu, `gradient` is empty.
struct contribute {
  step_number step;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t samples = 0;
  payload gradient;
};

/// The step is computed, and the worker has sent all its contributions. Only now may these
/// contributions take effect.
struct commit {
  step_number step;
  std::uint64_t samples = 0;
  /// The loss, summed over the samples.
  double loss_sum = 0;
  /// Sum of the squared elements of the contributed gradient. The gradient is a sum over the
  /// samples. The sum of squares leaves out elements that belong to running statistics.
  double squared_norm = 0;
  /// True if the worker has no other batch to train yet, so it may take long until its next
  /// `acquire`.
  bool pauses = false;
  /// The worker's loss scale after this gradient, if it has one.
  std::optional<loss_scale_state> loss_scale = std::nullopt;

  /// True if loss and gradient are finite. Otherwise, no task may apply any part of the gradient.
  bool finite() const noexcept { return std::isfinite(loss_sum) && std::isfinite(squared_norm); }
};

/// The worker will not compute the step that it acquired, and has contributed nothing to this step.
/// The synchronizer answers with `committed`, as after a commit.
struct abandon {
  step_number step;
};

/// The outcome of the step's gradient. `samples` is the number of samples in the update: of all
/// workers in a synchronous protocol, of this worker alone in an asynchronous one.
struct committed {
  step_number step;
  proto::Outcome outcome = proto::OUTCOME_UNSET;
  std::uint64_t staleness = 0;
  std::uint64_t samples = 0;
  /// If the job clips by norm: the norm of the update's gradient (its mean over the samples) before
  /// clipping.
  std::optional<double> gradient_norm = std::nullopt;
  /// True if the gradient was scaled down, because it was much larger than other gradients.
  bool limited = false;
};

/// The synchronizer cannot continue. The run fails with the text `reason`.
struct broken {
  std::string reason;
  /// True if the cause is a gradient that is not finite.
  bool not_finite = false;
  /// Present if the cause is the loss of this task.
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
