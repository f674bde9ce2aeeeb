#include "actors/model/data_sources.hpp"

#include "actors/model/data_split.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/token_input.hpp"
#include "kernels/data/arrays.hpp"
#include "kernels/data/joined.hpp"
#include "kernels/data/normalized.hpp"
#include "kernels/data/picture_files.hpp"
#include "kernels/data/sparse.hpp"
#include "kernels/data/text.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/characters.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/npz.hpp"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Features in plain files are mapped into memory if they have at least this many bytes in total.
constexpr std::uint64_t map_from = std::uint64_t{256} << 20;

/// An array and its name in errors.
struct named_array {
  std::string name;
  shared_bytes memory;
  npy_array array;

  named_array(std::string what, shared_bytes bytes)
    : name(std::move(what)), memory(std::move(bytes)), array(parse_npy(memory.bytes, name)) {}
};

/// The parts of an array, which may be in several files.
using array_parts = std::vector<named_array>;

/// The largest number in these arrays, but at least 1. The ignored label does not count.
double largest_of(std::initializer_list<const array_parts*> arrays,
                  std::optional<std::int32_t> ignored = std::nullopt) {
  double result = 1;
  for (const auto* parts : arrays)
    for (const auto& x : *parts)
      for (std::uint64_t i = 0; i < x.array.size(); ++i)
        if (const double value = x.array.at(i); !ignored || value != *ignored)
          result = std::max(result, value);
  return result;
}

/// Decides how the parts are read. All parts get the same number of classes and of tokens, because
/// a file may lack a class or a token that another file contains.
array_reading reading_of(const proto::Model& model, const array_parts& features,
                         const array_parts& labels, const array_parts& test_features,
                         const array_parts& test_labels) {
  constexpr double most = 1e9;
  const bool several = labels.size() > 1 || !test_labels.empty();
  array_reading result;
  result.classes_per_position = model.loss() == proto::SOFTMAX_CROSS_ENTROPY;
  if (model.has_ignored_label())
    result.ignored_label = model.ignored_label();
  const auto& first = labels.front().array;
  result.classes = troupe::classes_of(model);
  if (result.classes == 0 && several && has_whole_numbers(first)
      && (are_classes(first) || result.classes_per_position))
    result.classes = static_cast<std::size_t>(
                       std::min(largest_of({&labels, &test_labels}, result.ignored_label), most))
      + 1;
  const auto tokens = token_input(model);
  if (tokens && has_whole_numbers(features.front().array))
    result.vocabulary = *tokens != 0
      ? *tokens
      : static_cast<std::size_t>(std::min(largest_of({&features, &test_features}), most)) + 1;
  return result;
}

std::shared_ptr<const dataset> join(const array_parts& features, const array_parts& labels,
                                    const array_reading& how, const std::string& field) {
  if (features.size() != labels.size())
    throw input_error(field + ": " + std::to_string(features.size()) + " files of features, "
                      + std::to_string(labels.size())
                      + " of labels; expected the same number, paired in the order of their names");
  std::vector<std::shared_ptr<const dataset>> parts;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const auto& x = features[i];
    const auto& y = labels[i];
    parts.push_back(npy_records(x.array, x.memory, x.name, y.array, y.name, how));
    if (parts[i]->record() != parts[0]->record())
      throw input_error(x.name + ": records of " + to_string(parts[i]->record()) + ", but "
                        + features[0].name + " has " + to_string(parts[0]->record()));
  }
  return joined(std::move(parts));
}

/// Throws if training and test records have different shapes.
void require_alike(const dataset& train, const dataset& test, const std::string& field) {
  if (train.record() != test.record())
    throw input_error(field + ": records of " + to_string(test.record())
                      + ", but the training records have " + to_string(train.record()));
}

/// Builds data from arrays. `read` reads the arrays of a field: "features", "labels",
/// "test_features" or "test_labels".
template <class Read>
job_data build_arrays(const proto::Job& job, bool test_files, const std::string& source,
                      Read read) {
  const array_parts features = read("features");
  const array_parts labels = read("labels");
  array_parts test_features;
  array_parts test_labels;
  if (test_files) {
    test_features = read("test_features");
    test_labels = read("test_labels");
  }
  const auto how = reading_of(job.model(), features, labels, test_features, test_labels);
  auto whole = join(features, labels, how, source + ".features");
  std::shared_ptr<const dataset> test;
  if (test_files) {
    test = join(test_features, test_labels, how, source + ".test_features");
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
    const auto paths = files_of(expand_environment(given, "data.npy." + field));
    std::uint64_t bytes = 0;
    for (const auto& path : paths) {
      std::error_code none;
      const auto size = std::filesystem::file_size(path, none);
      bytes += none ? 0 : size;
    }
    // Only features are mapped, because labels are copied anyway.
    const bool mapped = field.ends_with("features") && bytes >= map_from;
    array_parts result;
    for (const auto& path : paths)
      result.emplace_back(path.string(),
                          mapped ? map_plain_or_gzip(path) : share(read_plain_or_gzip(path)));
    return result;
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
    array_parts result;
    result.emplace_back(path + ": " + array, share(file.read(array, default_max_file_bytes)));
    return result;
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
  result.notices = split_notices(job.data(), sizes, characters.size());
  result.characters = known;
  result.train = sizes.train == characters.size() ? whole : part(0, sizes.train);
  if (sizes.validation > 0)
    result.validation = part(sizes.train, sizes.validation);
  result.test = sizes.test == 0 ? result.train : part(characters.size() - sizes.test, sizes.test);
  return result;
}

/// Largest number of features if the job does not state the number. Without this limit, one wrong
/// index in a line would make a model of many gigabytes.
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
  // The test file may contain a class that the training file does not contain.
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

job_data build_image_folder(const proto::Job& job) {
  const auto& how = job.data().image_folder();
  const auto list = [](const std::string& given, const std::string& field,
                       const std::vector<std::string>& classes) {
    return list_pictures(expand_environment(given, field), classes);
  };
  auto pictures = list(how.path(), "data.image_folder.path", {});
  const auto names = pictures.classes;
  if (const auto units = classes_of(job.model()); units != 0 && names.size() > units)
    throw input_error("data.image_folder.path: " + std::to_string(names.size())
                      + " folders of classes, but the last layer has " + std::to_string(units)
                      + " units");
  const picture_size size{how.height(), how.width(), how.channels()};
  const auto whole = picture_files(std::move(pictures), size);
  std::shared_ptr<const dataset> test;
  if (!how.test_path().empty()) {
    test = picture_files(list(how.test_path(), "data.image_folder.test_path", names), size);
    require_alike(*whole, *test, "data.image_folder.test_path");
  }
  auto result = apply_split(job.data(), whole, std::move(test));
  result.class_names = names;
  return result;
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
