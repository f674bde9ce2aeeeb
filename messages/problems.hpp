#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <string>

// Checks of messages from peers. Each function returns a problem, such as "a loss of nan", or an
// empty text if it finds none. If there is a problem, the receiver answers with errc::malformed or
// ignores the message, and continues. These functions see only the message. The receiver itself
// makes the checks that need its state.

namespace troupe {

/// The largest accepted count, larger than any count in a run. The sum of 65,536 counts up to this
/// limit fits in 64 bits.
inline constexpr std::uint64_t most_counted = std::uint64_t{1} << 48;

/// The sequence number must be at least 1.
std::string problem_of(const proto::GradientId& x);

/// Finds values that would damage a shard's weights: values that are not finite, and factors
/// outside of their range. A quarantined gradient is never applied, so only its ID, its number of
/// samples and its loss scale are checked.
/// @param most_samples the largest number of samples in a worker's batch
std::string problem_of(const proto::Commit& x, std::uint64_t most_samples);

/// The sum of squares must be finite and not negative.
std::string problem_of(const proto::PartialNorm& x);
std::string problem_of(const proto::Damping& x);

/// The norm must be finite and not negative.
std::string problem_of(const proto::Advanced& x);

/// The positions must be below 2^62. Each batch must lie within one stride: offset + batch must be
/// at most stride.
std::string problem_of(const proto::Lease& x);

/// Durations and norms must be finite and not negative, and counts at most most_counted.
std::string problem_of(const proto::Progress& x);

/// The same checks as for Progress. In addition, `loss_samples` must not be larger than `samples`.
std::string problem_of(const proto::LeaseDone& x);
std::string problem_of(const proto::Heartbeat& x);

/// Counts must be at most most_counted.
std::string problem_of(const proto::CheckpointPart& x);
std::string problem_of(const proto::Report& x);
std::string problem_of(const proto::Restore& x);

/// The text of the error for a Restore that does not fit the receiver.
std::string describe(const proto::Restore& x, std::size_t bytes);

/// The activity must be known. Durations and statistics must be finite and not negative.
std::string problem_of(const proto::TaskStatus& x);

/// Members must have different names. `x.task` must be a member with this incarnation, or an
/// evaluator, which need not be a member.
std::string problem_of(const proto::OpenView& x, std::uint64_t incarnation);

/// Accuracies and measures must be from 0 to 1, except for the perplexity. The perplexity must not
/// be negative; it may be NaN if the loss is NaN. The hash must be a SHA-256, the confusion matrix
/// must be square, and the number of coefficients must be 0 or `coefficients`.
std::string problem_of(const proto::Evaluated& x, std::uint64_t coefficients);

} // namespace troupe
