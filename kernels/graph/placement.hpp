#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <vector>

// Two functions that cut the flat parameter vector into `parts` contiguous parts. They return the
// parts in order. Each element belongs to exactly one part. For 0 parts, the result is empty.

namespace troupe {

/// Parts of nearly equal size. A row is a slice of the first dimension of a tensor. A cut within a
/// row moves to the nearer end of this row, so that few rows are divided. It stays where it is if
/// the distance is more than an eighth of a part.
std::vector<range> cut_at_rows(const layout& x, std::size_t parts);

/// Parts that consist of whole tensors. The largest part is as small as possible. Within this
/// limit, the sizes of the parts are nearly equal. If there are more parts than tensors, some parts
/// are empty.
std::vector<range> cut_at_tensors(const layout& x, std::size_t parts);

} // namespace troupe
