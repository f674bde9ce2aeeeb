#include "apps/troupe/class_view.hpp"

#include "actors/model/data_split.hpp"
#include "actors/model/dataset_labels.hpp"
#include "apps/troupe/numbers.hpp"
#include "apps/troupe/text_table.hpp"
#include "kernels/formats/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

/// The largest numbers of classes and of warnings that are shown. All further ones are only
/// counted.
constexpr std::size_t most_classes = 20;
constexpr std::size_t most_warnings = 5;

/// A class gets a warning only if a part of the data has many more or many fewer of its records
/// than expected: the difference is larger than this many standard deviations. With a random split,
/// this happens to a class that is not rare in fewer than one case in a million.
constexpr double deviations = 5;
/// There is no warning if the number of records is larger or smaller than the expected number by
/// less than this factor.
constexpr double factor = 1.5;

struct part {
  std::string name;
  std::vector<std::uint64_t> counts;
  std::uint64_t records = 0;
};

std::vector<part> parts_of(const job_data& data) {
  std::vector<part> result;
  const auto add = [&](const std::string& name, const dataset& x) {
    result.push_back({name, count_classes(x), x.size()});
  };
  add("train", *data.train);
  if (data.validation)
    add("validation", *data.validation);
  if (data.test != data.train)
    add("test", *data.test);
  return result;
}

std::string name_of(const job_data& data, std::size_t which) {
  if (which < data.class_names.size())
    return excerpt(data.class_names[which]);
  // A class without a name is called "of unit 3", because "3" might be the name of another class.
  return (data.class_names.empty() ? "" : "of unit ") + std::to_string(which);
}

/// The warning about a class in a part; empty if there is none.
std::string warning_of(const std::string& name, const part& x, std::size_t which,
                       double share_of_all, std::uint64_t total, std::size_t parts) {
  const auto n = static_cast<double>(x.counts[which]);
  const auto expected = share_of_all * static_cast<double>(x.records);
  if (n == 0 && total < parts)
    return fmt::format("class {} has no record in {}: it has only {} in all", name, x.name, total);
  if (n == 0)
    return fmt::format("class {} has no record in {}", name, x.name);
  const bool far = std::abs(n - expected) > deviations * std::sqrt(expected)
    && (n > factor * expected || n < expected / factor);
  return far ? fmt::format("class {} is {:.1f} % of {}, but {:.1f} % of all records", name,
                           100 * n / static_cast<double>(x.records), x.name, 100 * share_of_all)
             : "";
}

} // namespace

class_view view_classes(const job_data& data, const proto::Data& split) {
  class_view result;
  const auto parts = parts_of(data);
  const auto classes = parts[0].counts.size();
  if (classes == 0)
    return result;
  std::vector<std::string> head{"class"};
  std::uint64_t all = 0;
  for (const auto& x : parts) {
    head.push_back(x.name);
    all += x.records;
  }
  text_table table{std::move(head)};
  std::vector<std::string> warnings;
  // True if another split of the data could avoid a warning. It cannot if the class has fewer
  // records than there are parts.
  bool avoidable = false;
  for (std::size_t c = 0; c < classes; ++c) {
    std::vector<std::string> row{name_of(data, c)};
    std::uint64_t total = 0;
    for (const auto& x : parts) {
      row.push_back(number(x.counts[c]));
      total += x.counts[c];
    }
    if (c < most_classes)
      table.add(std::move(row));
    for (const auto& x : parts)
      if (total > 0 && parts.size() > 1)
        if (auto text = warning_of(name_of(data, c), x, c,
                                   static_cast<double>(total) / static_cast<double>(all), total,
                                   parts.size());
            !text.empty()) {
          warnings.push_back(std::move(text));
          avoidable = avoidable || total >= parts.size();
        }
    if (total == 0)
      warnings.push_back(fmt::format("class {} has no record", name_of(data, c)));
  }
  result.lines = table.lines();
  if (classes > most_classes)
    result.lines.push_back(fmt::format("... and {} more", classes - most_classes));
  const auto told = std::min(warnings.size(), most_warnings);
  result.warnings.assign(warnings.begin(), warnings.begin() + static_cast<std::ptrdiff_t>(told));
  if (warnings.size() > told)
    result.warnings.push_back(
      fmt::format("and {} more classes that are missing or uneven", warnings.size() - told));
  if (avoidable && split.has_split() && !split.split().stratify())
    result.warnings.push_back(is_shuffled(split)
                                ? "draw the parts with the same share of each class "
                                  "(data.split.stratify)"
                                : "draw the parts at random (data.split.shuffle), or with the same "
                                  "share of each class (data.split.stratify)");
  return result;
}

} // namespace troupe
