#pragma once

#include "kernels/data/dataset.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// Joins data sets: the records of the first one, then the records of the second one, and so on.
/// The result shares ownership of these data sets.
/// @param parts at least one data set. The records of all parts must have the same shape, and must
/// not be sparse.
/// @throws input_error if the records of a part have another shape than those of part 0. The text
/// gives the number of the part, counted from 0.
std::shared_ptr<const dataset> joined(std::vector<std::shared_ptr<const dataset>> parts);

} // namespace troupe
