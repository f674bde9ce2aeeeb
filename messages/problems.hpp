#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <string>

// Checks of messages from peers, as far as the message alone is enough. Each function returns the
// problem, such as "a loss of nan", or an empty text. If there is a problem, the receiver answers
// with errc::malformed or ignores the message, and continues. The receiver makes all checks that
// need its own state.

namespace troupe {

/// Larger than any count in a run. The sum of 65,536 counts up to this limit fits in 64 bits.
inline constexpr std::uint64_t most_counted = std::uint64_t{1} << 48;

/// Sequences start at 1.
std::string problem_of(const proto::GradientId& x);

/// Finds values that would damage a shard's weights: values that are not finite, and factors
/// outside of their range. For a quarantined gradient, which is not applied, only the ID, the
/// samples and the loss scale are checked.
/// @param most_samples the largest number of samples in a worker's batch
std::string problem_of(const proto::Commit& x, std::uint64_t most_samples);

/// The sum of squares must be finite and not negative.
std::string problem_of(const proto::PartialNorm& x);
std::string problem_of(const proto::Damping& x);

/// The norm must be finite and not negative.
std::string problem_of(const proto::Advanced& x);

/// The positions must be below 2^62, and each batch must lie within its stride.
std::string problem_of(const proto::Lease& x);

/// Durations and norms must be finite and not negative, and counts at most most_counted.
std::string problem_of(const proto::Progress& x);

/// Like Progress. The loss must not cover more samples than there are.
std::string problem_of(const proto::LeaseDone& x);
std::string problem_of(const proto::Heartbeat& x);

/// Counts must be at most most_counted.
std::string problem_of(const proto::CheckpointPart& x);
std::string problem_of(const proto::Report& x);
std::string problem_of(const proto::Restore& x);

/// The text of the error for a restore that does not fit and has a payload of `bytes` bytes.
std::string describe(const proto::Restore& x, std::size_t bytes);

/// The activity must be known. Durations and statistics must be finite and not negative.
std::string problem_of(const proto::TaskStatus& x);

/// Members must have different names. `task` must be one of them, with this incarnation. An
/// evaluator need not be a member.
std::string problem_of(const proto::OpenView& x, std::uint64_t incarnation);

/// Accuracies and measures (except the perplexity) must be from 0 to 1, the hash must be a SHA-256,
/// the confusion matrix square, and the number of coefficients 0 or `coefficients`. The perplexity
/// may be NaN only if the loss is NaN.
std::string problem_of(const proto::Evaluated& x, std::uint64_t coefficients);

} // namespace troupe
