#pragma once

#include "actors/model/data_builder.hpp"

#include <cstdint>

namespace troupe {

/// How many records (of a text, characters) train, validate and test.
struct split_sizes {
  std::uint64_t train = 0;
  std::uint64_t validation = 0;
  /// 0: other files test, or the training records do.
  std::uint64_t test = 0;
};

/// What Data.split makes of so many.
/// @param test_files whether the source names files to test on.
/// @throws input_error: more than there are, or nothing left for one of them.
split_sizes split_of(const proto::Data& data, std::uint64_t count, bool test_files);

/// The first records train, those after them validate, the last ones test; or `test`, where it is
/// given.
job_data apply_split(const std::shared_ptr<const dataset>& whole, split_sizes sizes,
                     std::shared_ptr<const dataset> test = nullptr);

} // namespace troupe
