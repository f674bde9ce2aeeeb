#include "actors/model/feature_files.hpp"

#include "actors/model/feature_columns.hpp"
#include "kernels/data/arrays.hpp"
#include "kernels/data/feature_rows.hpp"
#include "kernels/data/normalized.hpp"
#include "kernels/data/picture_files.hpp"
#include "kernels/data/sparse.hpp"
#include "kernels/data/subset.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/csv.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/idx.hpp"
#include "kernels/formats/libsvm.hpp"
#include "kernels/formats/npz.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <utility>

namespace troupe {

namespace {

/// Approximate size of a part, in bytes of features.
constexpr std::size_t part_bytes = std::size_t{32} << 20;

/// Number of sparse rows in a part. It is fixed, because the sizes of the rows are not known before
/// they are read.
constexpr std::uint64_t sparse_rows_at_once = 8192;

std::uint64_t rows_at_once(const record_shape& record) {
  if (record.features == feature_kind::sparse)
    return sparse_rows_at_once;
  return std::max<std::uint64_t>(
    1, part_bytes / sizeof(float) / std::max<std::size_t>(1, record.feature_width()));
}

std::shared_ptr<const dataset> scaled(std::shared_ptr<const dataset> x, const data_facts& facts) {
  return facts.normalization ? normalized(std::move(x), *facts.normalization) : x;
}

/// Reads the rows of one or more arrays, one array after the other.
class array_features final : public feature_files {
public:
  struct source {
    std::string name;
    shared_bytes memory;
    npy_array array;
  };

  /// @param open opens the next array; an array without a name means the end.
  array_features(data_facts facts, std::function<source()> open)
    : facts_(std::move(facts)), open_(std::move(open)) {}

  feature_part next() override {
    if (row_ == rows()) {
      now_ = open_();
      row_ = 0;
      if (now_.name.empty())
        return {};
    }
    auto part = now_.array;
    if (rows() > 0) {
      const auto n = std::min(rows_at_once(facts_.shape), rows() - row_);
      const auto bytes = part.values.size() / rows();
      part.shape[0] = n;
      part.values = part.values.subspan(row_ * bytes, n * bytes);
    }
    const auto name =
      row_ == 0 ? now_.name : now_.name + ", from record " + std::to_string(row_) + " on";
    const auto records = npy_features(part, now_.memory, name, facts_.shape);
    row_ += records->size();
    first_ += records->size();
    return {scaled(records, facts_), first_ - records->size()};
  }

private:
  std::uint64_t rows() const { return now_.array.shape.empty() ? 0 : now_.array.shape[0]; }

  data_facts facts_;
  std::function<source()> open_;
  source now_;
  std::uint64_t row_ = 0;   // next row of the array
  std::uint64_t first_ = 0; // rows read so far, of all arrays
};

array_features::source npy_source(const std::filesystem::path& path) {
  array_features::source result{path.string(), map_plain_or_gzip(path), {}};
  result.array = parse_npy(result.memory.bytes, result.name);
  return result;
}

array_features::source npz_source(const std::string& path, const std::string& name) {
  const auto bytes = read_file(path);
  array_features::source result{
    path + ": " + name, share(npz_file{bytes, path}.read(name, default_max_file_bytes)), {}};
  result.array = parse_npy(result.memory.bytes, result.name);
  return result;
}

array_features::source idx_source(const std::string& path) {
  array_features::source result{path, map_plain_or_gzip(path), {}};
  const auto pixels = parse_idx_u8(result.memory.bytes, 3, path);
  result.array = {npy_type::u8, pixels.shape, pixels.values};
  return result;
}

class csv_features final : public feature_files {
public:
  csv_features(const proto::Csv& csv, data_facts facts, const std::string& path)
    : csv_(csv), facts_(std::move(facts)), path_(path), file_(map_plain_or_gzip(path)),
      columns_(columns()),
      rows_(file_.bytes, columns_, {csv.missing_text().begin(), csv.missing_text().end()}, path) {
    if (features_ != facts_.shape.feature_width())
      throw input_error(path + ": the job's columns give " + std::to_string(features_)
                        + " features, but the model was trained with "
                        + std::to_string(facts_.shape.feature_width()));
    require_names();
  }

  feature_part next() override {
    while (true) {
      const auto first = first_;
      auto table = rows_.next(rows_at_once(facts_.shape));
      first_ += table.rows;
      if (table.rows == 0)
        return {};
      std::vector<std::uint64_t> kept;
      auto records = features_of(table, first, kept);
      if (kept.size() < table.rows)
        records = subset(records, std::move(kept));
      if (records->size() > 0)
        return {records, first};
    }
  }

private:
  /// The columns of the features. A name with a wildcard stands for columns of the training data,
  /// if these are known. Other columns of this table are ignored.
  std::vector<std::string> names() const {
    if (!has_wildcards(csv_))
      return {csv_.features().begin(), csv_.features().end()};
    return facts_.columns.names.empty()
      ? feature_columns(csv_, parse_csv_header(file_.bytes, path_), path_)
      : facts_.columns.names;
  }

  std::vector<csv_column> columns() {
    std::vector<csv_column> result;
    for (const auto& name : names()) {
      const bool text = std::ranges::find(csv_.categories(), name) != csv_.categories().end();
      result.push_back({name, text});
      begins_.push_back(features_);
      if (text && !facts_.columns.categories.contains(name))
        throw input_error("data.csv.categories: column \"" + excerpt(name)
                          + "\" had no categories when the model was trained");
      const auto known = text ? facts_.columns.categories.at(name).size() : 1;
      categories_.emplace_back(text ? facts_.columns.categories.at(name)
                                    : std::vector<std::string>{});
      features_ += text && csv_.drop_first() ? std::max<std::size_t>(known, 1) - 1 : known;
    }
    if (const auto& how = facts_.normalization)
      for (const auto n : {how->shift.size(), how->scale.size()})
        if (n != 1 && n != features_)
          throw input_error("the weights file scales " + std::to_string(n) + " features; " + path_
                            + " has " + std::to_string(features_));
    return result;
  }

  /// Throws if the columns differ from those of the training data.
  void require_names() const {
    const auto& trained = facts_.feature_names;
    for (std::size_t j = 0; j < begins_.size() && !trained.empty(); ++j) {
      const auto end = j + 1 < begins_.size() ? begins_[j + 1] : features_;
      if (begins_[j] == end)
        continue;
      const auto found = begins_[j] < trained.size() ? trained[begins_[j]] : std::string{};
      const auto& name = columns_[j].name;
      if (columns_[j].text ? !found.starts_with(name + "=") : found != name)
        throw input_error(path_ + ": feature " + std::to_string(begins_[j]) + " is column \""
                          + excerpt(name) + "\" in the job, but \"" + excerpt(found)
                          + "\" in the trained model; expected the same columns in the same "
                            "order");
    }
  }

  std::string place(std::uint64_t record, std::size_t column) const {
    return path_ + ": record " + std::to_string(record) + ", column \""
      + excerpt(columns_[column].name) + "\"";
  }

  /// @param kept is set to the numbers of the rows that become records.
  std::shared_ptr<const dataset> features_of(csv_table& table, std::uint64_t first,
                                             std::vector<std::uint64_t>& kept) const {
    feature_rows result{facts_.shape.features, features_, table.rows};
    for (std::size_t j = 0; j < columns_.size(); ++j)
      if (columns_[j].text)
        find_categories(j, table);
    for (std::uint64_t row = 0; row < table.rows; ++row) {
      result.begin();
      const auto values = std::span{table.values}.subspan(row * columns_.size(), columns_.size());
      const bool gap = std::ranges::any_of(values, [](double x) { return std::isnan(x); });
      if (gap && csv_.missing() == proto::DROP)
        continue;
      kept.push_back(row);
      for (std::size_t j = 0; j < columns_.size(); ++j)
        if (std::isnan(values[j]))
          replace(first + row, j, result);
        else if (columns_[j].text)
          set_category(j, static_cast<std::size_t>(values[j]), result);
        else
          set_number(first + row, j, values[j], result);
    }
    return std::move(result).finish(stored_labels::absent(facts_.shape, table.rows), path_);
  }

  /// Changes the cells of a column from texts to categories of the training data. A category that
  /// the training data did not have becomes a missing value.
  void find_categories(std::size_t column, csv_table& table) const {
    std::vector<double> found;
    for (const auto& text : table.texts[column]) {
      const auto which = categories_[column].find(text);
      if (!which && csv_.missing() == proto::REFUSE)
        throw input_error(path_ + ": column \"" + excerpt(columns_[column].name)
                          + "\" has the category \"" + excerpt(text)
                          + "\", which the training data did not have; data.csv.missing says what "
                            "to do about missing values: DROP, MEAN or MEDIAN");
      found.push_back(which ? static_cast<double>(*which)
                            : std::numeric_limits<double>::quiet_NaN());
    }
    for (std::uint64_t row = 0; row < table.rows; ++row)
      if (auto& x = table.values[row * columns_.size() + column]; !std::isnan(x))
        x = found[static_cast<std::size_t>(x)];
  }

  void set_category(std::size_t column, std::size_t which, feature_rows& out) const {
    const std::size_t first = csv_.drop_first() ? 1 : 0;
    if (which >= first)
      out.set(begins_[column] + which - first, 1);
  }

  void set_number(std::uint64_t record, std::size_t column, double value, feature_rows& out) const {
    const auto k = begins_[column];
    if (const auto& how = facts_.normalization)
      value = (value - how->shift.at(how->shift.size() == 1 ? 0 : k))
        / how->scale.at(how->scale.size() == 1 ? 0 : k);
    if (!(std::abs(value) <= std::numeric_limits<float>::max()))
      throw input_error(place(record, column) + ": the number does not fit float32");
    out.set(k, static_cast<float>(value));
  }

  /// Replaces a missing value as in training: a number by the mean or median of the training data.
  /// For a missing category, `out` does not change: all features of the column are 0 already.
  /// Throws if the job or the trained weights do not allow missing values.
  void replace(std::uint64_t record, std::size_t column, feature_rows& out) const {
    const bool refused = csv_.missing() == proto::REFUSE;
    const auto known = facts_.columns.replacements.find(columns_[column].name);
    if (refused || (!columns_[column].text && known == facts_.columns.replacements.end()))
      throw input_error(place(record, column)
                        + (refused ? ": no value. data.csv.missing says what to do about missing "
                                     "values: DROP, MEAN or MEDIAN"
                                   : ": no value, and the weights were trained without "
                                     "data.csv.missing: MEAN or MEDIAN"));
    if (!columns_[column].text)
      set_number(record, column, known->second, out);
  }

  proto::Csv csv_;
  data_facts facts_;
  std::string path_;
  shared_bytes file_;
  /// The first feature of each column, and the number of features.
  std::vector<std::size_t> begins_;
  std::size_t features_ = 0;
  /// For each column: the categories of the training data.
  std::vector<category_index> categories_;
  std::vector<csv_column> columns_;
  csv_reader rows_;
  std::uint64_t first_ = 0;
};

class libsvm_features final : public feature_files {
public:
  libsvm_features(data_facts facts, const std::string& path)
    : facts_(std::move(facts)), path_(path), file_(map_plain_or_gzip(path)),
      rows_(file_.bytes, path) {}

  feature_part next() override {
    auto rows = rows_.next(sparse_rows_at_once);
    const auto n = rows.rows();
    if (n == 0)
      return {};
    first_ += n;
    return {std::make_shared<const sparse_dataset>(std::move(rows), facts_.shape.feature_width(),
                                                   stored_labels::absent(facts_.shape, n), path_),
            first_ - n};
  }

private:
  data_facts facts_;
  std::string path_;
  shared_bytes file_;
  libsvm_reader rows_;
  std::uint64_t first_ = 0;
};

class picture_features final : public feature_files {
public:
  picture_features(const proto::ImageFolder& how, data_facts facts, const std::string& path)
    : facts_(std::move(facts)),
      all_(list_unlabelled_pictures(path, facts_.class_names)), size_{how.height(), how.width(),
                                                                      how.channels()} {}

  feature_part next() override {
    if (first_ == all_.files.size())
      return {};
    const auto n = std::min<std::uint64_t>(rows_at_once(facts_.shape), all_.files.size() - first_);
    picture_folder part;
    part.path = all_.path;
    part.classes = all_.classes;
    const auto begin = all_.files.begin() + static_cast<std::ptrdiff_t>(first_);
    part.files.assign(begin, begin + static_cast<std::ptrdiff_t>(n));
    part.labels.resize(n);
    const auto files = part.files;
    const auto records = picture_files(std::move(part), size_);
    if (records->record() != facts_.shape)
      throw input_error((all_.path / files[0]).string() + ": a picture of "
                        + to_string(records->record().dims) + "; the model was trained with "
                        + to_string(facts_.shape.dims)
                        + ": set data.image_folder.height and width");
    first_ += n;
    return {scaled(records, facts_), first_ - n, files};
  }

private:
  data_facts facts_;
  picture_folder all_;
  picture_size size_;
  std::uint64_t first_ = 0;
};

} // namespace

std::unique_ptr<feature_files> open_features(const proto::Job& job, data_facts facts,
                                             const std::string& path) {
  const auto one_array = [&](auto open) {
    return std::make_unique<array_features>(std::move(facts), [open, done = false]() mutable {
      return std::exchange(done, true) ? array_features::source{} : open();
    });
  };
  switch (job.data().source_case()) {
  case proto::Data::kNpy: {
    const auto found = files_of(path);
    std::deque<std::filesystem::path> files{found.begin(), found.end()};
    return std::make_unique<array_features>(std::move(facts), [files]() mutable {
      if (files.empty())
        return array_features::source{};
      auto result = npy_source(files.front());
      files.pop_front();
      return result;
    });
  }
  case proto::Data::kNpz:
    return one_array([path, name = job.data().npz().features()] { return npz_source(path, name); });
  case proto::Data::kIdx:
    return one_array([path] { return idx_source(path); });
  case proto::Data::kCsv:
    return std::make_unique<csv_features>(job.data().csv(), std::move(facts), path);
  case proto::Data::kLibsvm:
    return std::make_unique<libsvm_features>(std::move(facts), path);
  case proto::Data::kImageFolder:
    return std::make_unique<picture_features>(job.data().image_folder(), std::move(facts), path);
  case proto::Data::kDigits:
  case proto::Data::kText:
  case proto::Data::SOURCE_NOT_SET:
    break;
  }
  throw input_error("--features: the job's data are drawn digits or text; expected a job with idx, "
                    "csv, npy, npz, libsvm or image_folder. To continue a text, use --generate");
}

} // namespace troupe
