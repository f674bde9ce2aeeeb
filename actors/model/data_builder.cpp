#include "actors/model/data_builder.hpp"

#include "actors/model/data_sources.hpp"
#include "actors/model/data_split.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/label_check.hpp"
#include "kernels/data/digits.hpp"
#include "kernels/data/images.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

std::shared_ptr<const dataset> read_images(const std::string& images,
                                           const std::string& images_field,
                                           const std::string& labels,
                                           const std::string& labels_field, std::size_t classes) {
  const std::string images_path = expand_environment(images, images_field);
  const std::string labels_path = expand_environment(labels, labels_field);
  const auto pixels = read_plain_or_gzip(images_path);
  return idx_images(pixels, images_path, read_plain_or_gzip(labels_path), labels_path, classes);
}

job_data build_idx(const proto::Job& job) {
  const auto& idx = job.data().idx();
  const std::size_t classes = classes_of(job.model());
  auto whole =
    read_images(idx.images(), "data.idx.images", idx.labels(), "data.idx.labels", classes);
  const bool test_files = !idx.test_images().empty();
  if (!test_files)
    return apply_split(job.data(), whole);
  auto test = read_images(idx.test_images(), "data.idx.test_images", idx.test_labels(),
                          "data.idx.test_labels", classes);
  if (test->record().feature_width() != whole->record().feature_width())
    throw input_error(
      "data.idx.test_images: images of " + std::to_string(test->record().feature_width())
      + " pixels, but data.idx.images has " + std::to_string(whole->record().feature_width()));
  return apply_split(job.data(), whole, std::move(test));
}

job_data build_digits(const proto::Job& job) {
  const auto& digits = job.data().digits();
  return split_in_order(generate_digits(digits.train() + digits.test(), digits.seed()),
                        {digits.train(), 0, digits.test()});
}

job_data build_source(const proto::Job& job, const column_facts& trained) {
  switch (job.data().source_case()) {
  case proto::Data::kIdx:
    return build_idx(job);
  case proto::Data::kCsv:
    return build_csv(job, trained);
  case proto::Data::kDigits:
    return build_digits(job);
  case proto::Data::kNpy:
    return build_npy(job);
  case proto::Data::kNpz:
    return build_npz(job);
  case proto::Data::kText:
    return build_text(job);
  case proto::Data::kLibsvm:
    return build_libsvm(job);
  case proto::Data::kImageFolder:
    return build_image_folder(job);
  case proto::Data::SOURCE_NOT_SET:
    break;
  }
  throw input_error(
    "data: no source; add one of idx, csv, digits, npy, npz, text, libsvm, image_folder");
}

void check_augment(const proto::Data& how, const job_data& data) {
  if (!how.has_augment())
    return;
  const auto& record = data.train->record();
  if (record.features != feature_kind::numbers || record.dims.rank() != 3)
    throw input_error("data.augment: records of " + to_string(record)
                      + "; expected images (channels, height, width)");
  const auto padding = how.augment().crop_padding();
  if (padding >= record.dims[1] || padding >= record.dims[2])
    throw input_error("data.augment.crop_padding: " + std::to_string(padding)
                      + "; expected less than the height and width of images of "
                      + to_string(record.dims));
}

void check_batch(const proto::Job& job, const job_data& data) {
  if (const auto problem = batch_problem(job.data(), data.train->size()); !problem.empty())
    throw input_error("data.batch: " + problem);
}

} // namespace

std::string batch_problem(const proto::Data& data, std::uint64_t train_records,
                          const std::string& from) {
  const bool known = data.has_batch() || !data.has_global_batch();
  if (!known || data.batch() <= train_records)
    return "";
  const auto records = std::to_string(train_records);
  return std::to_string(data.batch()) + (data.has_batch() ? "" : " (the default)")
    + " is more than the " + records + " training records" + (from.empty() ? "" : " (" + from + ")")
    + (data.has_batch() ? ""
                        : "; set data.batch to at most " + records
           + ", or to 0 for all training records in one step");
}

job_data build_data(const proto::Job& job) {
  return build_new_data(job, {});
}

job_data build_new_data(const proto::Job& job, const column_facts& trained) {
  auto result = normalize(job.data(), build_source(job, trained));
  check_augment(job.data(), result);
  check_targets(job.model(), result);
  return result;
}

job_data build_training_data(const proto::Job& job) {
  auto result = build_data(job);
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
  if (data.validation && to_string(data.validation->record()) != train)
    throw input_error("data: training records have " + train + ", validation records "
                      + to_string(data.validation->record()) + "; expected the same");
  check_augment(job.data(), data);
  check_targets(job.model(), data);
  check_batch(job, data);
  return data;
}

} // namespace troupe
