#pragma once

#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

// A proto::Selection selects elements of the flat parameter vector. A batch of sparse features or
// of token IDs reads only a few rows of a large table, and its gradient is 0 in all other rows. So
// only the rows that the batch reads travel between nodes.

namespace troupe {

/// The number of selected elements in [begin, end).
std::uint64_t selected(const proto::Selection& x, std::uint64_t begin, std::uint64_t end);

/// The selected elements in [begin, end) as stretches (first element, last element + 1), in order.
std::vector<std::pair<std::uint64_t, std::uint64_t>>
stretches(const proto::Selection& x, std::uint64_t begin, std::uint64_t end);

/// The part of a selection within [begin, end): the tensors and rows that have at least one element
/// there.
proto::Selection cut(const proto::Selection& x, std::uint64_t begin, std::uint64_t end);

/// Copies the selected elements of `all`, in order.
/// @param begin position of all[0] in the flat vector
/// @param out selected(x, begin, begin + all.size()) elements
void gather(const proto::Selection& x, std::uint64_t begin, std::span<const float> all,
            std::span<float> out);

/// The inverse of `gather`: copies `values` to the selected elements of `all`, in order. Other
/// elements of `all` keep their values.
void scatter(const proto::Selection& x, std::uint64_t begin, std::span<const float> values,
             std::span<float> all);

/// The reason why a peer's selection is invalid, such as "rows do not ascend"; empty if it is
/// valid.
std::string problem_of(const proto::Selection& x);

} // namespace troupe
