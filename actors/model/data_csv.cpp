#include "actors/model/data_sources.hpp"
#include "actors/model/data_split.hpp"
#include "actors/model/feature_columns.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/data/feature_rows.hpp"
#include "kernels/data/subset.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/csv.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/printable.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Tables: numbers, categories and classes from the columns of a CSV file.

namespace troupe {

namespace {

/// Largest number of classes that an error lists.
constexpr std::size_t most_named = 8;

bool is_category(const proto::Csv& csv, const std::string& column) {
  return std::ranges::find(csv.categories(), column) != csv.categories().end();
}

/// The columns to read: first the features, then the target or label.
std::vector<csv_column> columns_of(const proto::Csv& csv,
                                   const std::vector<std::string>& features) {
  std::vector<csv_column> result;
  for (const auto& name : features)
    result.push_back({name, is_category(csv, name)});
  if (csv.has_label())
    result.push_back({csv.label(), true});
  else
    result.push_back({csv.target(), false});
  return result;
}

/// A table, and the columns computed from it.
class csv_builder {
public:
  csv_builder(const proto::Job& job, const column_facts& trained)
    : job_(job), trained_(trained), csv_(job.data().csv()),
      path_(expand_environment(csv_.path(), "data.csv.path")) {}

  job_data build() {
    read();
    keep_records();
    const auto classes = classes_of_records();
    const auto lists = lists_of(job_.data(), kept_.size(), [&] {
      if (!csv_.has_label())
        throw input_error("data.split.stratify: the records have a target, and no classes "
                          "(data.csv.label); leave it out");
      std::vector<std::int32_t> result;
      for (const auto row : kept_)
        result.push_back(static_cast<std::int32_t>(classes[row]));
      return result;
    });
    for (const auto record : lists.train)
      training_rows_.push_back(kept_[record]);
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i)
      if (columns_[i].text)
        add_categories(i);
      else
        add_numbers(i);
    auto labels = csv_.has_label() ? labels_of(classes) : targets();
    return split(lists, std::move(labels));
  }

private:
  double& cell(std::uint64_t row, std::size_t column) {
    return table_.values[row * columns_.size() + column];
  }

  std::span<double> cells(std::uint64_t row) {
    return std::span{table_.values}.subspan(row * columns_.size(), columns_.size());
  }

  /// The columns of the features. New data have the same columns as the training data.
  std::vector<std::string> features(std::span<const std::byte> bytes) {
    if (!has_wildcards(csv_))
      return {csv_.features().begin(), csv_.features().end()};
    facts_.names = trained_.names;
    if (facts_.names.empty()) {
      const auto header = parse_csv_header(bytes, path_);
      facts_.names = feature_columns(csv_, header, path_);
      if (const auto nameless = std::ranges::find(header, ""); nameless != header.end())
        notices_.push_back(path_ + ": column " + std::to_string(nameless - header.begin() + 1)
                           + " has no name, so data.csv.features leaves it out");
    }
    return facts_.names;
  }

  void read() {
    const auto bytes = read_plain_or_gzip(path_);
    columns_ = columns_of(csv_, features(bytes));
    const std::vector<std::string> missing{csv_.missing_text().begin(), csv_.missing_text().end()};
    table_ = parse_csv(bytes, columns_, missing, path_);
    const bool gaps = std::ranges::any_of(table_.values, [](double x) { return std::isnan(x); });
    const auto last = columns_.size() - 1;
    if (gaps && csv_.missing() == proto::REFUSE) {
      const auto gap = first_gap(bytes, columns_, missing, path_);
      throw input_error(gap.place + ": no value"
                        + (gap.column == last
                             ? ", and this is the column to predict; use data.csv.missing: DROP to "
                               "leave such records out"
                             : ". data.csv.missing says what to do about missing values: DROP, "
                               "MEAN or MEDIAN"));
    }
    for (std::uint64_t row = 0; row < table_.rows && csv_.missing() != proto::DROP; ++row)
      if (std::isnan(cell(row, last)))
        throw input_error(path_ + ": record " + std::to_string(row) + " has no value in column \""
                          + excerpt(columns_[last].name)
                          + "\", the column to predict; use data.csv.missing: DROP to leave "
                            "such records out");
  }

  /// Selects the rows to use. With DROP, these are the rows without missing values. Otherwise,
  /// these are all rows.
  void keep_records() {
    std::vector<std::uint64_t> dropped;
    for (std::uint64_t row = 0; row < table_.rows; ++row) {
      const auto values = cells(row);
      const bool drop = csv_.missing() == proto::DROP
        && std::ranges::any_of(values, [](double x) { return std::isnan(x); });
      if (drop)
        dropped.push_back(row);
      else
        kept_.push_back(row);
    }
    if (kept_.empty())
      throw input_error(path_ + ": each of the " + std::to_string(table_.rows)
                        + " records lacks a value; data.csv.missing: DROP leaves none");
    // No record reads a dropped row. But its cells are checked and scaled like all others, so they
    // get usual values.
    for (const auto row : dropped)
      std::ranges::copy(cells(kept_.front()), cells(row).begin());
  }

  /// Returns the class of each row, and sets `class_names_`. Returns nothing if the job has no
  /// label.
  std::vector<double> classes_of_records() {
    std::vector<double> result;
    if (!csv_.has_label())
      return result;
    const auto last = columns_.size() - 1;
    sort_categories(used_texts(last, kept_), class_names_);
    number_texts(last, class_names_);
    for (std::uint64_t row = 0; row < table_.rows; ++row)
      result.push_back(cell(row, last));
    return result;
  }

  /// Returns the texts that occur in a column of these rows.
  std::vector<std::string> used_texts(std::size_t column, std::span<const std::uint64_t> rows) {
    const auto& all = table_.texts[column];
    std::vector<bool> used(all.size());
    std::vector<std::string> result;
    for (const auto row : rows) {
      const auto x = cell(row, column);
      if (std::isnan(x) || used[static_cast<std::size_t>(x)])
        continue;
      used[static_cast<std::size_t>(x)] = true;
      result.push_back(all[static_cast<std::size_t>(x)]);
    }
    return result;
  }

  /// Changes the cells of a column from positions in table_.texts to positions in `names`. Other
  /// texts become NaN.
  void number_texts(std::size_t column, std::span<const std::string> names) {
    const category_index index{names};
    std::vector<double> places;
    for (const auto& text : table_.texts[column]) {
      const auto found = index.find(text);
      places.push_back(found ? static_cast<double>(*found)
                             : std::numeric_limits<double>::quiet_NaN());
    }
    for (std::uint64_t row = 0; row < table_.rows; ++row)
      if (auto& x = cell(row, column); !std::isnan(x))
        x = places[static_cast<std::size_t>(x)];
  }

  void add_numbers(std::size_t column) {
    const auto& name = columns_[column].name;
    const auto trained = trained_.replacements.find(name);
    const bool replaces = csv_.missing() == proto::MEAN || csv_.missing() == proto::MEDIAN;
    if (replaces && trained != trained_.replacements.end()) {
      replace_gaps(column, trained->second);
    } else {
      std::vector<double> known;
      for (const auto row : training_rows_)
        if (const auto value = cell(row, column); !std::isnan(value))
          known.push_back(value);
      if (known.empty())
        throw input_error(path_ + ": no training record has a value in column \"" + excerpt(name)
                          + "\"; leave the column out");
      if (replaces)
        replace_gaps(column, csv_.missing() == proto::MEDIAN ? median(known) : mean(known));
    }
    begins_.push_back(names_.size());
    numbers_.push_back(column);
    names_.push_back(columns_[column].name);
    moments_.push_back(csv_.standardize()
                         ? moments_of(table_.values, columns_.size(), column, training_rows_)
                         : column_moments{});
  }

  void replace_gaps(std::size_t column, double usual) {
    for (std::uint64_t row = 0; row < table_.rows; ++row)
      if (auto& value = cell(row, column); std::isnan(value))
        value = usual;
    facts_.replacements[columns_[column].name] = usual;
  }

  static double mean(std::span<const double> x) {
    double result = 0;
    for (const auto value : x)
      result += value / static_cast<double>(x.size());
    return result;
  }

  static double median(std::vector<double> x) {
    std::ranges::sort(x);
    return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
  }

  /// Changes the cells of the column from texts to numbers of categories. A category that no
  /// training record has becomes a missing value.
  void add_categories(std::size_t column) {
    std::vector<std::string> names;
    if (const auto known = trained_.categories.find(columns_[column].name);
        known != trained_.categories.end())
      names = known->second;
    else
      sort_categories(used_texts(column, training_rows_), names);
    number_texts(column, names);
    begins_.push_back(names_.size());
    for (std::size_t k = csv_.drop_first() ? 1 : 0; k < names.size(); ++k)
      names_.push_back(columns_[column].name + "=" + names[k]);
    moments_.resize(names_.size());
    facts_.categories[columns_[column].name] = std::move(names);
  }

  stored_labels labels_of(const std::vector<double>& classes) const {
    const auto known = classes_of(job_.model());
    const bool two =
      job_.model().loss() == proto::BINARY_CROSS_ENTROPY || job_.model().loss() == proto::HINGE;
    if (class_names_.size() < 2)
      throw input_error(text_of_classes() + "; expected at least 2");
    if (known != 0 && class_names_.size() > known)
      throw input_error(text_of_classes() + ", but "
                        + (two ? proto::Loss_Name(job_.model().loss())
                               + " takes two; use SOFTMAX_CROSS_ENTROPY and one unit per class"
                               : "the last layer has " + std::to_string(known)
                               + " units; expected a unit per "
                                 "class"));
    return stored_labels::as_classes(classes, class_numbers::from_zero, known, path_);
  }

  std::string text_of_classes() const {
    std::string result = path_ + ": column \"" + excerpt(csv_.label()) + "\" has "
      + std::to_string(class_names_.size())
      + (class_names_.size() == 1 ? " class (" : " classes (");
    for (std::size_t i = 0; i < std::min(class_names_.size(), most_named); ++i)
      result += (i > 0 ? ", " : "") + excerpt(class_names_[i]);
    return result + (class_names_.size() > most_named ? ", ...)" : ")");
  }

  stored_labels targets() {
    const auto last = columns_.size() - 1;
    const bool distance = job_.model().loss() == proto::MEAN_SQUARED_ERROR
      || job_.model().loss() == proto::MEAN_ABSOLUTE_ERROR;
    target_ = csv_.standardize() && distance
      ? moments_of(table_.values, columns_.size(), last, training_rows_)
      : column_moments{};
    std::vector<double> result(table_.rows);
    for (std::uint64_t row = 0; row < table_.rows; ++row)
      result[row] = (cell(row, last) - target_.mean) / target_.scale;
    return stored_labels::as_targets(result, 1, path_);
  }

  /// The columns of numbers, scaled: (rows, columns of numbers), row-major.
  std::vector<float> scaled_numbers() {
    std::vector<double> values;
    std::vector<column_moments> moments;
    std::vector<std::string> names;
    values.reserve(table_.rows * numbers_.size());
    for (std::uint64_t row = 0; row < table_.rows; ++row)
      for (const auto column : numbers_)
        values.push_back(cell(row, column));
    for (const auto column : numbers_) {
      moments.push_back(moments_[begins_[column]]);
      names.push_back(columns_[column].name);
    }
    return scaled_columns(values, moments, names, path_);
  }

  std::shared_ptr<const dataset> records(stored_labels labels) {
    const auto numbers = scaled_numbers();
    auto number = numbers.begin();
    feature_rows result{csv_.sparse() ? feature_kind::sparse : feature_kind::numbers, names_.size(),
                        table_.rows};
    const double first = csv_.drop_first() ? 1 : 0;
    for (std::uint64_t row = 0; row < table_.rows; ++row) {
      result.begin();
      for (std::size_t j = 0; j < begins_.size(); ++j)
        if (!columns_[j].text)
          result.set(begins_[j], *number++);
        else if (const auto category = cell(row, j); category >= first) // false for NaN
          result.set(begins_[j] + static_cast<std::size_t>(category - first), 1);
    }
    return std::move(result).finish(std::move(labels), path_);
  }

  job_data split(const split_lists& lists, stored_labels labels) {
    if (names_.empty())
      throw input_error(path_
                        + ": no features are left: each column of categories has one "
                          "category, and data.csv.drop_first leaves that out");
    auto whole = records(std::move(labels));
    if (kept_.size() < table_.rows)
      whole = subset(whole, kept_);
    job_data result;
    result.notices = notices_;
    for (auto& text : split_notices(
           job_.data(), {lists.train.size(), lists.validation.size(), lists.test.size()},
           kept_.size()))
      result.notices.push_back(std::move(text));
    result.train = lists.train.size() == kept_.size() ? whole : subset(whole, lists.train);
    if (!lists.validation.empty())
      result.validation = subset(whole, lists.validation);
    result.test = lists.test.empty() ? result.train : subset(whole, lists.test);
    describe(result);
    return result;
  }

  void describe(job_data& result) const {
    column_scaling scaling;
    for (const auto& [mean, scale] : moments_) {
      scaling.feature_mean.push_back(mean);
      scaling.feature_scale.push_back(scale);
    }
    if (csv_.standardize())
      result.normalization = feature_scaling{scaling.feature_mean, scaling.feature_scale};
    if (!csv_.has_label()) {
      scaling.target_mean = {target_.mean};
      scaling.target_scale = {target_.scale};
      result.scaling = std::move(scaling);
    }
    result.feature_names = names_;
    result.class_names = class_names_;
    result.columns = facts_;
  }

  const proto::Job& job_;
  const column_facts& trained_;
  const proto::Csv& csv_;
  std::string path_;
  std::vector<csv_column> columns_;
  csv_table table_;
  std::vector<std::string> class_names_;
  /// Numbers of the rows of the table that are used as records.
  std::vector<std::uint64_t> kept_;
  std::vector<std::uint64_t> training_rows_;
  // Names and scalings of the features.
  std::vector<std::string> names_;
  std::vector<column_moments> moments_;
  /// For each column of features: its first feature.
  std::vector<std::size_t> begins_;
  /// The columns of numbers.
  std::vector<std::size_t> numbers_;
  column_facts facts_;
  column_moments target_;
  std::vector<std::string> notices_;
};

} // namespace

job_data build_csv(const proto::Job& job, const column_facts& trained) {
  return csv_builder{job, trained}.build();
}

} // namespace troupe
