#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <string>

// Checks of peers' messages that need only the message. Each function returns the problem, such as
// "a loss of nan", or an empty text. If there is a problem, the receiver answers with
// errc::malformed or ignores the message, and continues. The receiver itself makes the checks that
// need its state.

namespace troupe {

/// No run counts further than this. The sum of 65,536 such counts fits 64 bits.
inline constexpr std::uint64_t most_counted = std::uint64_t{1} << 48;

/// Sequences start at 1.
std::string problem_of(const proto::GradientId& x);

/// Finds values that would damage a shard's weights: values that are not finite, and factors out of
/// their range. These checks are skipped for a quarantined gradient.
/// @param most_samples the largest number of samples in a worker's batch
std::string problem_of(const proto::Commit& x, std::uint64_t most_samples);

/// The sum of squares must be finite and not negative.
std::string problem_of(const proto::PartialNorm& x);
std::string problem_of(const proto::Damping& x);

/// The norm must be finite and not negative.
std::string problem_of(const proto::Advanced& x);

/// The lease's batches must be countable and lie within it.
std::string problem_of(const proto::Lease& x);

/// Durations must be finite and not negative, norms finite, counts at most most_counted.
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

/// The activity must be known, the durations finite and not negative.
std::string problem_of(const proto::TaskStatus& x);

/// Members must have different names. `task` must be one of them, with this incarnation. An
/// evaluator need not be a member.
std::string problem_of(const proto::OpenView& x, std::uint64_t incarnation);

/// The accuracy must be from 0 to 1, the hash a SHA-256, and the number of coefficients 0 or
/// `coefficients`. The perplexity is not a number only if the loss is none.
std::string problem_of(const proto::Evaluated& x, std::uint64_t coefficients);

} // namespace troupe
