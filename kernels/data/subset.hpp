#pragma once

#include "kernels/data/dataset.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// Records first .. first + count - 1 of another data set, renumbered from 0.
///
/// The result shares ownership of `whole`. Its `read` allocates nothing, because it converts the
/// numbers of records in groups, through a fixed buffer.
/// @throws input_error if the range is not within `whole`.
std::shared_ptr<const dataset> subset(std::shared_ptr<const dataset> whole, std::uint64_t first,
                                      std::uint64_t count);

/// The given records of another data set, in this order, renumbered from 0. A record may appear
/// twice.
/// @throws input_error if a record is not within `whole`.
std::shared_ptr<const dataset> subset(std::shared_ptr<const dataset> whole,
                                      std::vector<std::uint64_t> records);

} // namespace troupe
