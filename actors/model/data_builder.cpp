#include "actors/model/data_builder.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/data/digits.hpp"
#include "kernels/data/images.hpp"
#include "kernels/data/subset.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/csv.hpp"
#include "kernels/formats/file.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// How many records train, and how many test, of a source of `records`.
struct split_sizes {
  std::uint64_t train;
  std::uint64_t test; ///< 0: the training records test
};

split_sizes split_of(const proto::Data& data, std::uint64_t records) {
  if (!data.has_split())
    return {records, 0};
  const auto& split = data.split();
  const auto too_large = [&] {
    throw input_error("data.split: train " + std::to_string(split.train()) + " and test "
                      + std::to_string(split.test()) + " are more than the data's "
                      + std::to_string(records) + " records");
  };
  if (split.train() > records || split.test() > records - split.train())
    too_large();
  const split_sizes sizes{split.has_train() ? split.train() : records - split.test(),
                          split.has_test() ? split.test() : records - split.train()};
  if (sizes.train == 0 || sizes.test == 0)
    throw input_error("data.split: nothing is left for "
                      + std::string{sizes.train == 0 ? "train" : "test"} + ": the data has "
                      + std::to_string(records) + " records");
  return sizes;
}

/// The first records train, the last ones test.
job_data apply_split(std::shared_ptr<const dataset> whole, split_sizes sizes) {
  const std::uint64_t records = whole->size();
  job_data result;
  result.train = sizes.train == records ? whole : subset(whole, 0, sizes.train);
  result.test = sizes.test == 0 ? result.train : subset(whole, records - sizes.test, sizes.test);
  return result;
}

std::shared_ptr<const dataset> read_images(const std::string& images,
                                           const std::string& images_field,
                                           const std::string& labels,
                                           const std::string& labels_field, std::size_t classes) {
  const std::string images_path = expand_environment(images, images_field);
  const std::string labels_path = expand_environment(labels, labels_field);
  const auto pixels = read_plain_or_gzip(images_path);
  return idx_images(pixels, images_path, read_plain_or_gzip(labels_path), labels_path, classes);
}

/// Classes of the model: units of its last layer, for the softmax loss; 0: not known.
std::size_t classes_of(const proto::Model& model) {
  if (model.loss() == proto::BINARY_CROSS_ENTROPY || model.loss() == proto::HINGE)
    return 2;
  if (model.loss() != proto::SOFTMAX_CROSS_ENTROPY || model.layer_size() == 0)
    return 0;
  return model.layer(model.layer_size() - 1).dense().units();
}

job_data build_idx(const proto::Job& job) {
  const auto& idx = job.data().idx();
  const std::size_t classes = classes_of(job.model());
  auto whole =
    read_images(idx.images(), "data.idx.images", idx.labels(), "data.idx.labels", classes);
  if (idx.test_images().empty())
    return apply_split(whole, split_of(job.data(), whole->size()));
  auto test = read_images(idx.test_images(), "data.idx.test_images", idx.test_labels(),
                          "data.idx.test_labels", classes);
  if (test->record().feature_width() != whole->record().feature_width())
    throw input_error(
      "data.idx.test_images: images of " + std::to_string(test->record().feature_width())
      + " pixels, but data.idx.images has " + std::to_string(whole->record().feature_width()));
  return {std::move(whole), std::move(test), std::nullopt};
}

job_data build_csv(const proto::Job& job) {
  const auto& csv = job.data().csv();
  const std::string path = expand_environment(csv.path(), "data.csv.path");
  std::vector<std::string> columns{csv.features().begin(), csv.features().end()};
  columns.push_back(csv.target());
  const auto table = parse_csv(read_plain_or_gzip(path), columns, path);
  const auto sizes = split_of(job.data(), table.rows);
  auto whole = std::make_shared<const table_dataset>(table.values, columns.size() - 1, 1,
                                                     csv.standardize(), sizes.train);
  auto result = apply_split(whole, sizes);
  result.scaling = whole->scaling();
  return result;
}

job_data build_digits(const proto::Job& job) {
  const auto& digits = job.data().digits();
  return apply_split(generate_digits(digits.train() + digits.test(), digits.seed()),
                     {digits.train(), digits.test()});
}

job_data build_source(const proto::Job& job) {
  switch (job.data().source_case()) {
  case proto::Data::kIdx:
    return build_idx(job);
  case proto::Data::kCsv:
    return build_csv(job);
  case proto::Data::kDigits:
    return build_digits(job);
  case proto::Data::SOURCE_NOT_SET:
    break;
  }
  throw input_error("data: no source; add one of idx, csv, digits");
}

void check_batch(const proto::Job& job, const job_data& data) {
  if (job.data().batch() > data.train->size())
    throw input_error("data.batch: " + std::to_string(job.data().batch()) + " is more than the "
                      + std::to_string(data.train->size()) + " training records");
}

} // namespace

job_data build_data(const proto::Job& job) {
  auto result = build_source(job);
  check_batch(job, result);
  return result;
}

job_data given_data(const proto::Job& job, job_data data) {
  if (!data.train || data.train->size() == 0)
    throw input_error("data: no training records; expected at least one");
  if (!data.test)
    data.test = data.train;
  if (data.test->size() == 0)
    throw input_error("data: no test records; leave out the test data to test on the training "
                      "records");
  const auto train = to_string(data.train->record());
  const auto test = to_string(data.test->record());
  if (train != test)
    throw input_error("data: training records have " + train + ", test records " + test
                      + "; expected the same");
  check_batch(job, data);
  return data;
}

} // namespace troupe
