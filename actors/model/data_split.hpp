#pragma once

#include "actors/model/data_builder.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe {

/// How many records (of a text, characters) train, validate and test.
struct split_sizes {
  std::uint64_t train = 0;
  std::uint64_t validation = 0;
  /// 0: test files, or the training records, are used for testing.
  std::uint64_t test = 0;
};

/// The sizes that Data.split gives for a number of records.
/// @param test_files whether the source names test files.
/// @throws input_error: more records than there are, or none left for one of the parts.
split_sizes split_of(const proto::Data& data, std::uint64_t count, bool test_files);

/// Numbers of the records that train, validate and test, each list in ascending order.
struct split_lists {
  std::vector<std::uint64_t> train;
  std::vector<std::uint64_t> validation;
  std::vector<std::uint64_t> test;
};

/// Whether Data.split draws the parts at random: unless `shuffle` is false, or the data is a text.
bool is_shuffled(const proto::Data& data);

/// Draws the parts at random, from the seed of the split. The same on every node.
/// @param sizes together at most `count`
split_lists draw_split(const proto::Split& split, split_sizes sizes, std::uint64_t count);

/// As draw_split, but each part gets the same share of each class, up to a record.
/// @param classes of all records
split_lists draw_stratified(const proto::Split& split, split_sizes sizes,
                            std::span<const std::int32_t> classes);

/// The lists of a job's split, at random or in order.
/// @param classes called if they are needed (Split.stratify)
/// @throws input_error as split_of
split_lists lists_of(const proto::Data& data, std::uint64_t count,
                     const std::function<std::vector<std::int32_t>()>& classes);

/// Splits a data set as the job says. `test`, if given, becomes the test records.
/// @throws input_error as split_of; stratify without classes
job_data apply_split(const proto::Data& data, const std::shared_ptr<const dataset>& whole,
                     std::shared_ptr<const dataset> test = nullptr);

/// The first records train, those after them validate, the last ones test; or `test`, if it is
/// given.
job_data split_in_order(const std::shared_ptr<const dataset>& whole, split_sizes sizes,
                        std::shared_ptr<const dataset> test = nullptr);

} // namespace troupe
