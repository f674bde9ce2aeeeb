#include "actors/model/data_sources.hpp"

#include "actors/model/data_split.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/data/arrays.hpp"
#include "kernels/data/normalized.hpp"
#include "kernels/data/sparse.hpp"
#include "kernels/data/text.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/characters.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/npz.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// An array in memory, and its name in errors.
struct named_array {
  std::string name;
  std::vector<std::byte> file;
  npy_array array;

  named_array(std::string what, std::vector<std::byte> bytes)
    : name(std::move(what)), file(std::move(bytes)), array(parse_npy(file, name)) {}
};

/// The number of classes in both label arrays: a test file may contain a class that training does
/// not.
std::size_t classes_of_both(const proto::Model& model, const named_array& train,
                            const named_array* test) {
  const auto known = troupe::classes_of(model);
  if (known != 0 || test == nullptr || !are_classes(train.array) || !are_classes(test->array))
    return known;
  double largest = 1;
  for (const auto* x : {&train.array, &test->array})
    for (std::uint64_t i = 0; i < x->size(); ++i)
      largest = std::max(largest, x->at(i));
  return static_cast<std::size_t>(std::min(largest, 1e9)) + 1;
}

/// Throws unless training and test records have the same shape.
void require_alike(const dataset& train, const dataset& test, const std::string& field) {
  if (train.record() != test.record())
    throw input_error(field + ": records of " + to_string(test.record())
                      + ", but the training records have " + to_string(train.record()));
}

/// `read` takes the name of a field: "features", "labels", "test_features", "test_labels".
template <class Read>
job_data build_arrays(const proto::Job& job, bool test_files, const std::string& source,
                      Read read) {
  const named_array features = read("features");
  const named_array labels = read("labels");
  std::optional<named_array> test_features;
  std::optional<named_array> test_labels;
  if (test_files) {
    test_features.emplace(read("test_features"));
    test_labels.emplace(read("test_labels"));
  }
  const auto classes = classes_of_both(job.model(), labels, test_labels ? &*test_labels : nullptr);
  const auto make = [&](const named_array& x, const named_array& y) {
    return npy_records(x.array, x.name, y.array, y.name, classes);
  };
  auto whole = make(features, labels);
  std::shared_ptr<const dataset> test;
  if (test_files) {
    test = make(*test_features, *test_labels);
    require_alike(*whole, *test, source + ".test_features");
  }
  return apply_split(job.data(), whole, std::move(test));
}

} // namespace

std::size_t classes_of(const proto::Model& model) {
  if (model.loss() == proto::BINARY_CROSS_ENTROPY || model.loss() == proto::HINGE)
    return 2;
  if (model.loss() != proto::SOFTMAX_CROSS_ENTROPY || model.layer_size() == 0)
    return 0;
  return model.layer(model.layer_size() - 1).dense().units();
}

job_data build_npy(const proto::Job& job) {
  const auto& npy = job.data().npy();
  const auto read = [&](const std::string& field) {
    const auto& given = field == "features" ? npy.features()
      : field == "labels"                   ? npy.labels()
      : field == "test_features"            ? npy.test_features()
                                            : npy.test_labels();
    const auto path = expand_environment(given, "data.npy." + field);
    return named_array{path, read_plain_or_gzip(path)};
  };
  return build_arrays(job, !npy.test_features().empty(), "data.npy", read);
}

job_data build_npz(const proto::Job& job) {
  const auto& npz = job.data().npz();
  const auto path = expand_environment(npz.path(), "data.npz.path");
  const auto bytes = read_file(path);
  const npz_file file{bytes, path};
  const auto read = [&](const std::string& field) {
    const auto& array = field == "features" ? npz.features()
      : field == "labels"                   ? npz.labels()
      : field == "test_features"            ? npz.test_features()
                                            : npz.test_labels();
    return named_array{path + ": " + array, file.read(array, default_max_file_bytes)};
  };
  return build_arrays(job, !npz.test_features().empty(), "data.npz", read);
}

job_data build_text(const proto::Job& job) {
  const auto& text = job.data().text();
  const auto path = expand_environment(text.path(), "data.text.path");
  const auto characters = decode_utf8(read_plain_or_gzip(path), path);
  const auto known = text.has_vocabulary()
    ? vocabulary{decode_utf8(as_byte_span(text.vocabulary()), "data.text.vocabulary")}
    : vocabulary{characters};
  const auto whole = std::make_shared<const text_dataset>(
    known.encode(characters, path), known.size(), text.window(),
    text.has_stride() ? text.stride() : text.window());
  const auto sizes = split_of(job.data(), characters.size(), false);
  const auto part = [&](std::uint64_t begin, std::uint64_t size) {
    return std::make_shared<const text_dataset>(whole, begin, begin + size);
  };
  job_data result;
  result.characters = known;
  result.train = sizes.train == characters.size() ? whole : part(0, sizes.train);
  if (sizes.validation > 0)
    result.validation = part(sizes.train, sizes.validation);
  result.test = sizes.test == 0 ? result.train : part(characters.size() - sizes.test, sizes.test);
  return result;
}

/// Without a limit, one wrong index in a line would make a model of many gigabytes.
constexpr std::size_t most_unstated_features = std::size_t{1} << 26;

job_data build_libsvm(const proto::Job& job) {
  const auto& libsvm = job.data().libsvm();
  const auto read = [](const std::string& given, const std::string& field) {
    const auto path = expand_environment(given, field);
    return std::pair{path, parse_libsvm(read_plain_or_gzip(path), path)};
  };
  auto [path, rows] = read(libsvm.path(), "data.libsvm.path");
  const bool test_files = !libsvm.test_path().empty();
  std::pair<std::string, libsvm_rows> test;
  if (test_files)
    test = read(libsvm.test_path(), "data.libsvm.test_path");
  const std::size_t features =
    libsvm.has_features() ? libsvm.features() : std::max(rows.width, test.second.width);
  if (!libsvm.has_features() && features > most_unstated_features)
    throw input_error((rows.width < features ? test.first : path) + ": the largest index is "
                      + std::to_string(features) + "; more than "
                      + std::to_string(most_unstated_features)
                      + " features, with a weight each for every unit, must be stated: set "
                        "data.libsvm.features, or correct the index");
  const bool targets = libsvm.labels() == proto::TARGETS;
  const auto numbering = numbering_of(rows.labels);
  const auto label = [&](const libsvm_rows& from, std::size_t classes, const std::string& name) {
    return targets ? stored_labels::as_targets(from.labels, 1, name)
                   : stored_labels::as_classes(from.labels, numbering, classes, name);
  };
  // A test file may contain a class that training does not.
  auto classes = classes_of(job.model());
  if (classes == 0 && test_files && !targets)
    classes = std::max(label(rows, 0, path).width(), label(test.second, 0, test.first).width());
  const auto make = [&](libsvm_rows from, const std::string& name) {
    auto labels = label(from, classes, name);
    return std::make_shared<const sparse_dataset>(std::move(from), features, std::move(labels),
                                                  name);
  };
  const auto whole = make(std::move(rows), path);
  return apply_split(job.data(), whole,
                     test_files ? make(std::move(test.second), test.first) : nullptr);
}

job_data normalize(const proto::Data& data, job_data x) {
  if (!data.has_normalize())
    return x;
  const auto& how = data.normalize();
  feature_scaling scaling;
  if (how.has_kind()) {
    scaling = how.kind() == proto::STANDARDIZE ? standardization(*x.train) : unit_range(*x.train);
  } else {
    const auto channels = x.train->record().dims[0];
    if (how.mean_size() != 1 && how.mean_size() != channels)
      throw input_error("data.normalize.mean: " + std::to_string(how.mean_size())
                        + " numbers; expected 1, or one for each of the " + std::to_string(channels)
                        + " channels");
    scaling = {{how.mean().begin(), how.mean().end()}, {how.stddev().begin(), how.stddev().end()}};
  }
  const bool shared = x.test == x.train;
  x.train = normalized(x.train, scaling);
  x.test = shared ? x.train : normalized(x.test, scaling);
  if (x.validation)
    x.validation = normalized(x.validation, scaling);
  x.normalization = scaling;
  const auto& record = x.train->record();
  if (how.kind() == proto::STANDARDIZE && record.labels == label_kind::targets)
    x.scaling = column_scaling{std::move(scaling.shift), std::move(scaling.scale),
                               std::vector<double>(record.label_width, 0),
                               std::vector<double>(record.label_width, 1)};
  return x;
}

} // namespace troupe
