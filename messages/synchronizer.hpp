#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/counters.hpp"
#include "messages/proto/wire.pb.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The seam of the whole design: what a worker says to a synchronizer, and hears from it, is the
// same for every protocol.
//
//   worker                                synchronizer
//     |-- acquire(clock, batch, rows) -------->|   pulls from shards, or waits for the ring
//     |<-------- acquired(step, ranges) -------|   as they come: forward starts on the first
//     |<-------- acquired(..., last) ----------|
//     |-- contribute(step, range, gradient) -->|   last layer first, while backward runs
//     |-- contribute ... --------------------->|
//     |-- commit(step, loss, norm, finite) --->|   nothing takes effect before
//     |<-------- committed(outcome, samples) --|
//
// All are one-way messages within one process; waiting for other workers is therefore never a
// pending request. The synchronizer sends `broken` instead when it cannot go on.

namespace troupe {

/// What of the weights a batch reads, and where its gradient may differ from 0; null: everything.
using batch_rows = std::shared_ptr<const proto::Selection>;

/// The worker has read its next batch, and wants weights for it. `lease` and `batch` say which
/// samples it will train: attributes of the gradient that is to come. If this worker is lost,
/// others go on from them.
struct acquire {
  worker_clock clock;
  std::uint64_t lease = 0;
  std::uint64_t batch = 0;
  /// Weights outside of it need not be up to date; the gradient is 0 there.
  batch_rows rows;
};

/// Weights [begin, begin + data.size() / 4) of the flat parameter vector, float32. They do not
/// change until the step is over, nor while the payload is held.
struct weight_range {
  std::uint64_t begin = 0;
  weights_version version;
  payload data;
};

/// Some ranges of the weights, in ascending order. Comes once or several times in a step, in any
/// order; together they cover the parameter vector. The synchronizer names the step: after a
/// rejection it is not the last one plus one.
struct acquired {
  step_number step;
  std::vector<weight_range> ranges;
  /// No more of them come in this step.
  bool last = true;
};

/// Gradient of parameters [begin, end), summed over the worker's samples: final, and the step reads
/// no weight of this range again. `gradient` is the whole flat gradient vector, of which only the
/// ranges contributed so far may be read; it is lent until its last reference is gone.
/// Contributions of a step cover the vector, each parameter once.
///
/// Zero samples are legal: the worker had no more data and contributes zeros.
struct contribute {
  step_number step;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t samples = 0;
  payload gradient;
};

/// The step's computation is done; all of its contributions were sent before. The synchronizer may
/// now let them take effect.
struct commit {
  step_number step;
  std::uint64_t samples = 0;
  /// Summed over the samples.
  double loss_sum = 0;
  /// Sum of squares of the contributed gradient (summed over samples), statistics left out.
  double squared_norm = 0;
  /// The worker knows of no other batch to train yet: its next `acquire` may take long.
  bool pauses = false;

  /// Loss and gradient are finite. If they are not, no part of the gradient may be applied
  /// anywhere.
  bool finite() const noexcept { return std::isfinite(loss_sum) && std::isfinite(squared_norm); }
};

/// The worker will not compute the step it acquired; nothing of it was contributed. Answered by
/// `committed`, too.
struct abandon {
  step_number step;
};

/// What became of the step's gradient. `samples` went into the update: of all workers in
/// synchronous protocols, this worker's own in asynchronous ones.
struct committed {
  step_number step;
  proto::Outcome outcome = proto::OUTCOME_UNSET;
  std::uint64_t staleness = 0;
  std::uint64_t samples = 0;
  /// Where the job clips by norm: of the gradient of the update (its mean over the samples), before
  /// it was clipped.
  std::optional<double> gradient_norm = std::nullopt;
  /// The gradient was scaled down, because it was much larger than others.
  bool limited = false;
};

/// The synchronizer cannot go on; the run fails with this text.
struct broken {
  std::string reason;
  /// Because a gradient is not finite.
  bool not_finite = false;
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

/// What every protocol's synchronizer understands.
using synchronizer_actor = caf::typed_actor<rpc<void, acquire>, rpc<void, contribute>,
                                            rpc<void, commit>, rpc<void, abandon>>;

} // namespace troupe
