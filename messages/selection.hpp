#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <span>
#include <string>

// Parts of a range of the flat parameter vector. A batch of sparse features, or of token ids, reads
// few rows of a large table, and its gradient is 0 in all others: only these rows need to travel.

namespace troupe {

/// How many elements of [begin, end) are selected.
std::uint64_t selected(const proto::Selection& x, std::uint64_t begin, std::uint64_t end);

/// What of a selection concerns [begin, end): tensors and rows that lie there, in whole or in part.
proto::Selection cut(const proto::Selection& x, std::uint64_t begin, std::uint64_t end);

/// Copies what is selected of `all`, in order.
/// @param begin where `all` begins in the flat vector
/// @param out selected(x, begin, begin + all.size()) elements
void gather(const proto::Selection& x, std::uint64_t begin, std::span<const float> all,
            std::span<float> out);

/// The inverse of `gather`. Elements of `all` that are not selected stay as they are.
void scatter(const proto::Selection& x, std::uint64_t begin, std::span<const float> values,
             std::span<float> all);

/// Why a selection from a peer cannot be used, such as rows that do not ascend; empty where it can.
std::string problem_of(const proto::Selection& x);

} // namespace troupe
