#pragma once

#include "kernels/graph/layout.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <vector>

// Two ways to cut the flat parameter vector into `parts` parts. Both return the parts in order. The
// parts cover each element once. For 0 parts, the result is empty.

namespace troupe {

/// Even parts. A cut within a row of a tensor (a slice of its first dimension) moves to the nearest
/// end of that row, unless this is farther than an eighth of an even part.
std::vector<range> cut_at_rows(const layout& x, std::size_t parts);

/// Parts of whole tensors. The largest part is as small as possible; otherwise, parts are nearly
/// even. If there are more parts than tensors, some are empty.
std::vector<range> cut_at_tensors(const layout& x, std::size_t parts);

} // namespace troupe
