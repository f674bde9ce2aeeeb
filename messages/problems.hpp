#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <string>

// What cannot be in a message of a peer, as far as the message itself shows it. The receiver
// answers with errc::malformed, or ignores the message, and goes on. Each function returns what is
// wrong, such as "a loss of nan"; empty: nothing. What depends on the receiver's state is checked
// where that state is.

namespace troupe {

/// No run counts to more than this. Sums of 65,536 such counts fit 64 bits.
inline constexpr std::uint64_t most_counted = std::uint64_t{1} << 48;

/// Sequences count from 1.
std::string problem_of(const proto::GradientId& x);

/// Numbers that would spoil the weights of a shard: not finite, or factors out of their range. A
/// quarantined gradient has none.
/// @param most_samples of a worker's batch
std::string problem_of(const proto::Commit& x, std::uint64_t most_samples);

/// A sum of squares is finite, and not negative.
std::string problem_of(const proto::PartialNorm& x);

/// Its batches can be counted, and lie within it.
std::string problem_of(const proto::Lease& x);

/// Seconds that are none, norms that are not finite, counts above most_counted.
std::string problem_of(const proto::Progress& x);

/// As Progress; a loss over more samples than there are.
std::string problem_of(const proto::LeaseDone& x);
std::string problem_of(const proto::Heartbeat& x);

/// Counts above most_counted.
std::string problem_of(const proto::CheckpointPart& x);
std::string problem_of(const proto::Report& x);
std::string problem_of(const proto::Restore& x);

/// For the error that refuses a restore with a payload of this size.
std::string describe(const proto::Restore& x, std::size_t bytes);

/// An activity that does not exist, seconds that are none.
std::string problem_of(const proto::TaskStatus& x);

/// Members with a name each of its own; `task` among them, with that incarnation, unless it is an
/// evaluator.
std::string problem_of(const proto::OpenView& x, std::uint64_t incarnation);

/// An accuracy that is none, another hash than SHA-256, coefficients of another number than
/// `coefficients`, unless there are none.
std::string problem_of(const proto::Evaluated& x, std::uint64_t coefficients);

} // namespace troupe
