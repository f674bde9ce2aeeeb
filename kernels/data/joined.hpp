#pragma once

#include "kernels/data/dataset.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// The records of several data sets, one after the other. The result shares ownership of these data
/// sets.
/// @param parts at least one, with the same shape of records, not sparse.
/// @throws input_error if their records differ, with the number of the part from 0.
std::shared_ptr<const dataset> joined(std::vector<std::shared_ptr<const dataset>> parts);

} // namespace troupe
