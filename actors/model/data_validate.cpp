#include "actors/model/data_sources.hpp"
#include "actors/model/data_split.hpp"
#include "actors/model/feature_columns.hpp"
#include "actors/model/problem_list.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

namespace troupe {

namespace {

constexpr std::uint32_t max_batch = 1U << 24;
constexpr std::uint64_t max_digits = 10'000'000; // they take 7.8 GB of memory
constexpr std::uint32_t max_window = 1U << 20;
constexpr std::uint32_t most_picture_size = 1U << 13;
constexpr std::uint32_t max_sparse = 1U << 31;
constexpr std::uint32_t max_prefetch = 64;
constexpr std::uint32_t most_read_threads = 1024;

/// Reports an error if the job names test files and also sets data.split.test. With test files, all
/// records of the other files are for training or validation.
void check_test_files(const proto::Data& data, bool test_files, const std::string& field,
                      problem_list& problems) {
  problems.require(!test_files || !data.split().has_test(), "data.split.test",
                   "there are test files (" + field + ") already; leave out one of the two");
}

void check_idx(const proto::Data& data, problem_list& problems) {
  const auto& idx = data.idx();
  problems.require(!idx.images().empty(), "data.idx.images", "missing; expected a path");
  problems.require(!idx.labels().empty(), "data.idx.labels", "missing; expected a path");
  problems.require(idx.test_images().empty() == idx.test_labels().empty(), "data.idx",
                   "test_images and test_labels belong together; give both or none");
  check_test_files(data, !idx.test_images().empty(), "data.idx.test_images", problems);
}

void check_csv(const proto::Csv& csv, problem_list& problems) {
  problems.require(!csv.path().empty(), "data.csv.path", "missing; expected a path");
  problems.require(csv.features_size() > 0, "data.csv.features",
                   "no columns to learn from; name at least one, or \"*\" for all others");
  const bool label = !csv.label().empty();
  problems.require(label || !csv.target().empty(), "data.csv.target",
                   "missing; name the column to predict: a number as target, a class as label");
  problems.require(!label || csv.target().empty(), "data.csv",
                   "target and label both name the column to predict; leave out one of the two");
  const auto& predicted = label ? csv.label() : csv.target();
  std::set<std::string> names{predicted};
  for (int i = 0; i < csv.features_size(); ++i)
    problems.require(names.insert(csv.features(i)).second,
                     "data.csv.features[" + std::to_string(i) + "]",
                     "column \"" + csv.features(i)
                       + (csv.features(i) != predicted ? "\" appears twice"
                            : label                    ? "\" is the label"
                                                       : "\" is the target"));
  for (int i = 0; i < csv.categories_size(); ++i)
    problems.require(has_wildcards(csv)
                       || std::ranges::find(csv.features(), csv.categories(i))
                         != csv.features().end(),
                     "data.csv.categories[" + std::to_string(i) + "]",
                     "column \"" + csv.categories(i) + "\" is not in data.csv.features");
  const auto needs_categories = [&](bool value, const std::string& path) {
    problems.require(!value || csv.categories_size() > 0, path,
                     "there are no columns of categories (data.csv.categories); leave it out");
  };
  needs_categories(csv.drop_first(), "data.csv.drop_first");
  needs_categories(csv.sparse(), "data.csv.sparse");
  problems.require(csv.missing() != proto::MISSING_UNSET, "data.csv.missing",
                   "expected REFUSE, DROP, MEAN or MEDIAN");
}

void check_digits(const proto::Data& data, problem_list& problems) {
  const std::uint64_t train = data.digits().train();
  const std::uint64_t test = data.digits().test();
  problems.require(train >= 1, "data.digits.train", "0 records; expected at least 1");
  problems.require(train <= max_digits && test <= max_digits && train + test <= max_digits,
                   "data.digits", "train + test is more than " + std::to_string(max_digits));
  problems.require(!data.has_split(), "data.split",
                   "data.digits already sets the numbers of records; leave out one of the two");
  const auto problem = batch_problem(data, train, "data.digits.train");
  problems.require(problem.empty() || train == 0, "data.batch", problem);
}

void check_npy(const proto::Data& data, problem_list& problems) {
  const auto& npy = data.npy();
  problems.require(!npy.features().empty(), "data.npy.features", "missing; expected a path");
  problems.require(!npy.labels().empty(), "data.npy.labels", "missing; expected a path");
  problems.require(npy.test_features().empty() == npy.test_labels().empty(), "data.npy",
                   "test_features and test_labels belong together; give both or none");
  check_test_files(data, !npy.test_features().empty(), "data.npy.test_features", problems);
}

void check_npz(const proto::Data& data, problem_list& problems) {
  const auto& npz = data.npz();
  problems.require(!npz.path().empty(), "data.npz.path", "missing; expected a path");
  const std::string array = "missing; expected the name of an array in the file";
  problems.require(!npz.features().empty(), "data.npz.features", array);
  problems.require(!npz.labels().empty(), "data.npz.labels", array);
  problems.require(npz.test_features().empty() == npz.test_labels().empty(), "data.npz",
                   "test_features and test_labels belong together; give both or none");
  check_test_files(data, !npz.test_features().empty(), "data.npz.test_features", problems);
}

void check_image_folder(const proto::Data& data, problem_list& problems) {
  const auto& how = data.image_folder();
  const std::string field = "data.image_folder";
  problems.require(!how.path().empty(), field + ".path", "missing; expected a path");
  problems.require(how.channels() == 1 || how.channels() == 3, field + ".channels",
                   std::to_string(how.channels()) + "; expected 1 (grey) or 3 (colours)");
  problems.require(how.has_height() == how.has_width(), field,
                   "height and width belong together; give both or none");
  for (const auto* name : {"height", "width"}) {
    const auto* size = proto::ImageFolder::descriptor()->FindFieldByName(name);
    const auto value = how.GetReflection()->GetUInt32(how, size);
    problems.require(
      !how.GetReflection()->HasField(how, size) || (value >= 1 && value <= most_picture_size),
      field + "." + name,
      std::to_string(value) + "; expected 1 to " + std::to_string(most_picture_size));
  }
  check_test_files(data, !how.test_path().empty(), field + ".test_path", problems);
}

void check_text(const proto::Text& text, problem_list& problems) {
  problems.require(!text.path().empty(), "data.text.path", "missing; expected a path");
  problems.require(text.window() >= 1 && text.window() <= max_window, "data.text.window",
                   "expected 1 to " + std::to_string(max_window) + " characters, got "
                     + std::to_string(text.window()));
  problems.require(!text.has_stride() || text.stride() >= 1, "data.text.stride",
                   "0 characters; expected at least 1");
  problems.require(!text.has_vocabulary() || !text.vocabulary().empty(), "data.text.vocabulary",
                   "empty; leave it out to take the characters of the file");
}

void check_libsvm(const proto::Data& data, problem_list& problems) {
  const auto& libsvm = data.libsvm();
  problems.require(!libsvm.path().empty(), "data.libsvm.path", "missing; expected a path");
  problems.require(!libsvm.has_features()
                     || (libsvm.features() >= 1 && libsvm.features() <= max_sparse),
                   "data.libsvm.features", "expected 1 to " + std::to_string(max_sparse));
  problems.require(libsvm.labels() != proto::LIBSVM_LABELS_UNSET, "data.libsvm.labels",
                   "expected CLASSES or TARGETS");
  check_test_files(data, !libsvm.test_path().empty(), "data.libsvm.test_path", problems);
}

void check_part(double part, bool given, const std::string& name, problem_list& problems) {
  if (!given)
    return;
  const bool valid = std::isfinite(part) && part > 0 && (part < 1 || part == std::floor(part));
  problems.require(valid, "data.split." + name,
                   "expected a number of records, at least 1, or a fraction between 0 and 1");
}

void check_split(const proto::Data& data, problem_list& problems) {
  if (!data.has_split())
    return;
  const auto& split = data.split();
  problems.require(split.has_train() || split.has_test() || split.has_validation(), "data.split",
                   "set train, test or validation (a number of records, or a fraction below 1)");
  check_part(split.train(), split.has_train(), "train", problems);
  check_part(split.test(), split.has_test(), "test", problems);
  check_part(split.validation(), split.has_validation(), "validation", problems);
  problems.require(!data.has_text() || !split.shuffle(), "data.split.shuffle",
                   "a text is split in order; leave it out");
  problems.require(!split.stratify() || is_shuffled(data), "data.split.stratify",
                   "parts with the same share of each class are drawn at random, and not "
                     + std::string{data.has_text() ? "of a text" : "with shuffle: false"}
                     + "; leave it out");
  // A larger number would not fit the integer, and is more than any batch.
  if (split.train() >= 1 && split.train() < max_batch) {
    const auto problem =
      batch_problem(data, static_cast<std::uint64_t>(split.train()), "data.split.train");
    problems.require(problem.empty(), "data.batch", problem);
  }
}

void check_normalize(const proto::Data& data, problem_list& problems) {
  if (!data.has_normalize())
    return;
  const auto& how = data.normalize();
  const std::string path = "data.normalize";
  problems.require(data.has_idx() || data.has_npy() || data.has_npz() || data.has_image_folder(),
                   path,
                   data.has_csv() ? "not for data.csv; use data.csv.standardize"
                                  : "for idx, npy, npz and image_folder only");
  const bool given = how.mean_size() > 0 || how.stddev_size() > 0;
  problems.require(how.has_kind() != given, path,
                   "give either kind (STANDARDIZE or UNIT_RANGE), or mean and stddev");
  problems.require(!how.has_kind() || how.kind() != proto::NORMALIZE_UNSET, path + ".kind",
                   "expected STANDARDIZE or UNIT_RANGE");
  problems.require(how.mean_size() == how.stddev_size(), path,
                   std::to_string(how.mean_size()) + " of mean, but "
                     + std::to_string(how.stddev_size()) + " of stddev; expected the same number");
  for (int i = 0; i < how.mean_size(); ++i)
    problems.require(std::isfinite(how.mean(i)), path + ".mean[" + std::to_string(i) + "]",
                     "expected a finite number");
  for (int i = 0; i < how.stddev_size(); ++i)
    problems.require(std::isfinite(how.stddev(i)) && how.stddev(i) > 0,
                     path + ".stddev[" + std::to_string(i) + "]",
                     "expected a finite number, more than 0");
}

} // namespace

void check_data(const proto::Data& data, data_from origin, problem_list& problems) {
  problems.require(data.batch() <= max_batch, "data.batch",
                   "expected 0 (all training records) to " + std::to_string(max_batch) + ", got "
                     + std::to_string(data.batch()));
  problems.require(data.prefetch() >= 1 && data.prefetch() <= max_prefetch, "data.prefetch",
                   "expected 1 to " + std::to_string(max_prefetch) + " batches, got "
                     + std::to_string(data.prefetch()));
  problems.require(data.read_threads() >= 1 && data.read_threads() <= most_read_threads,
                   "data.read_threads",
                   "expected a number of threads from 1 to " + std::to_string(most_read_threads)
                     + ", got " + std::to_string(data.read_threads()));
  const bool sparse = data.has_libsvm() || data.csv().sparse();
  problems.require(!sparse || data.read_threads() <= 1, "data.read_threads",
                   "a worker reads sparse features on one thread; leave it out");
  problems.require(!data.has_global_batch() || data.global_batch() >= 1, "data.global_batch",
                   "0 samples; expected at least 1. For all training records in one step, use "
                   "batch: 0");
  check_split(data, problems);
  check_normalize(data, problems);
  if (origin == data_from::program)
    problems.require(!data.has_split(), "data.split",
                     "the program supplies its own training and test records; leave it out");
  switch (data.source_case()) {
  case proto::Data::kIdx:
    return check_idx(data, problems);
  case proto::Data::kCsv:
    return check_csv(data.csv(), problems);
  case proto::Data::kDigits:
    return check_digits(data, problems);
  case proto::Data::kNpy:
    return check_npy(data, problems);
  case proto::Data::kNpz:
    return check_npz(data, problems);
  case proto::Data::kText:
    return check_text(data.text(), problems);
  case proto::Data::kLibsvm:
    return check_libsvm(data, problems);
  case proto::Data::kImageFolder:
    return check_image_folder(data, problems);
  case proto::Data::SOURCE_NOT_SET:
    problems.require(
      origin == data_from::program, "data",
      "no source; add one of idx, csv, digits, npy, npz, text, libsvm, image_folder");
  }
}

} // namespace troupe
