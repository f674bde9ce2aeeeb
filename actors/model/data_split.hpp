#pragma once

#include "actors/model/data_builder.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace troupe {

/// Numbers of records for training, validation and test. For a text, these are numbers of
/// characters.
struct split_sizes {
  std::uint64_t train = 0;
  std::uint64_t validation = 0;
  /// 0 means that test files, or the training records, are used for testing.
  std::uint64_t test = 0;
};

/// The sizes that Data.split gives for `count` records.
/// @param test_files true if the source names test files.
/// @throws input_error if the parts need more records than the data has, or if a part gets no
/// records.
split_sizes split_of(const proto::Data& data, std::uint64_t count, bool test_files);

/// Record numbers for training, validation and test. Each list is in ascending order.
struct split_lists {
  std::vector<std::uint64_t> train;
  std::vector<std::uint64_t> validation;
  std::vector<std::uint64_t> test;
};

/// Notices about a split: records that no part uses, and parts of a single record ("test: 1.0" does
/// not mean all records).
std::vector<std::string> split_notices(const proto::Data& data, split_sizes sizes,
                                       std::uint64_t count);

/// True if Data.split draws the parts at random. False if `shuffle` is false, and for a text.
bool is_shuffled(const proto::Data& data);

/// Draws the parts at random with the seed of the split. All nodes get the same result.
/// @param sizes at most `count` in total
split_lists draw_split(const proto::Split& split, split_sizes sizes, std::uint64_t count);

/// Like draw_split, but each part gets the same share of each class, to within one record.
/// @param classes the classes of all records, in order
split_lists draw_stratified(const proto::Split& split, split_sizes sizes,
                            std::span<const std::int32_t> classes);

/// Returns which records a job's split puts into each part. The parts are drawn at random, or taken
/// in the order of the file.
/// @param classes returns the classes of all records; called only if Split.stratify needs them
/// @throws input_error like split_of
split_lists lists_of(const proto::Data& data, std::uint64_t count,
                     const std::function<std::vector<std::int32_t>()>& classes);

/// Splits a data set as the job describes. If `test` is not null, it becomes the test data.
/// @throws input_error like split_of; also if the job stratifies records without classes
job_data apply_split(const proto::Data& data, const std::shared_ptr<const dataset>& whole,
                     std::shared_ptr<const dataset> test = nullptr);

/// Splits a data set in order: the first records are for training, the next for validation, the
/// last for testing. If `test` is not null, it becomes the test data instead.
job_data split_in_order(const std::shared_ptr<const dataset>& whole, split_sizes sizes,
                        std::shared_ptr<const dataset> test = nullptr);

} // namespace troupe
