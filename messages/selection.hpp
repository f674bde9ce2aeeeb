#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <span>
#include <string>

// Parts of a range of the flat parameter vector. A batch of sparse features or token ids reads only
// a few rows of a large table, and its gradient is 0 in all other rows. So only the rows that it
// reads travel.

namespace troupe {

/// The number of selected elements in [begin, end).
std::uint64_t selected(const proto::Selection& x, std::uint64_t begin, std::uint64_t end);

/// The part of a selection within [begin, end): the tensors and rows that lie there at least in
/// part.
proto::Selection cut(const proto::Selection& x, std::uint64_t begin, std::uint64_t end);

/// Copies the selected elements of `all`, in order.
/// @param begin where `all` begins in the flat vector
/// @param out selected(x, begin, begin + all.size()) elements
void gather(const proto::Selection& x, std::uint64_t begin, std::span<const float> all,
            std::span<float> out);

/// The inverse of `gather`. Other elements of `all` keep their values.
void scatter(const proto::Selection& x, std::uint64_t begin, std::span<const float> values,
             std::span<float> all);

/// The reason why a peer's selection is invalid, such as "rows do not ascend"; empty if it is
/// valid.
std::string problem_of(const proto::Selection& x);

} // namespace troupe
