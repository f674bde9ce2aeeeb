#include "actors/model/data_split.hpp"

#include "actors/model/dataset_labels.hpp"
#include "kernels/data/permutation.hpp"
#include "kernels/data/subset.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Converts a size in Data.split to a number of records. If `given` is below 1, it is a fraction of
/// `count`. Otherwise, it is the number itself.
std::uint64_t records_of(double given, std::uint64_t count) {
  return static_cast<std::uint64_t>(given < 1 ? std::round(given * static_cast<double>(count))
                                              : given);
}

std::string share_text(double x) {
  auto text = std::to_string(x);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.')
    text.pop_back();
  return text;
}

} // namespace

split_sizes split_of(const proto::Data& data, std::uint64_t count, bool test_files) {
  if (!data.has_split())
    return {count, 0, 0};
  const auto& split = data.split();
  const auto all = static_cast<double>(count);
  const auto asked = [&](double x) { return x < 1 ? x * all : x; };
  // The sum is checked before the sizes become integers, because a huge size would overflow.
  if (asked(split.train()) + asked(split.validation()) + asked(split.test()) > all + 0.5)
    throw input_error(
      "data.split: train " + share_text(split.train())
      + (split.has_validation() ? ", validation " + share_text(split.validation()) : std::string{})
      + " and test " + share_text(split.test()) + " are more than the data's "
      + std::to_string(count) + " records");
  split_sizes result;
  result.validation = records_of(split.validation(), count);
  result.test = records_of(split.test(), count);
  result.train = records_of(split.train(), count);
  const auto rest = [&](std::uint64_t taken) { return count - std::min(count, taken); };
  if (!split.has_train())
    result.train = rest(result.validation + result.test);
  else if (!split.has_test() && !test_files)
    result.test = rest(result.train + result.validation);
  const auto require = [&](std::uint64_t part, const char* name) {
    if (part == 0)
      throw input_error("data.split: nothing is left for " + std::string{name} + ": the data has "
                        + std::to_string(count) + " records");
  };
  // Rounding can make the sum one record too large. Training then gets one record less.
  if (const auto sum = result.train + result.validation + result.test; sum > count)
    result.train -= std::min(result.train, sum - count);
  require(result.train, "train");
  if (split.has_validation())
    require(result.validation, "validation");
  if (!test_files)
    require(result.test, "test");
  return result;
}

std::vector<std::string> split_notices(const proto::Data& data, split_sizes sizes,
                                       std::uint64_t count) {
  std::vector<std::string> result;
  const auto& split = data.split();
  const std::string unit = data.has_text() ? "character" : "record";
  const auto single = [&](double part, const std::string& name) {
    if (part == 1 && count > 1)
      result.push_back("data.split." + name + ": 1 is a number of " + unit
                       + "s, so this part has a single " + unit);
  };
  single(split.train(), "train");
  single(split.validation(), "validation");
  single(split.test(), "test");
  // Rounding fractions to whole records can leave one record.
  const auto unused = count - (sizes.train + sizes.validation + sizes.test);
  if (unused > 1)
    result.push_back("data.split: " + std::to_string(unused) + " of " + std::to_string(count) + ' '
                     + unit + "s are in no part, and are not used");
  return result;
}

bool is_shuffled(const proto::Data& data) {
  return data.split().has_shuffle() ? data.split().shuffle() : !data.has_text();
}

namespace {

/// Stands in for the number of an epoch when the split is drawn. No real epoch has this number, so
/// the split differs from the order of samples in each epoch.
constexpr std::uint64_t no_epoch = ~std::uint64_t{0};

/// Removes `count` records from a list at even distances and returns them. The remaining records
/// keep their order.
std::vector<std::uint64_t> take_evenly(std::vector<std::uint64_t>& from, std::uint64_t count) {
  std::vector<std::uint64_t> taken;
  std::vector<std::uint64_t> left;
  const std::uint64_t all = from.size();
  std::uint64_t due = 0;
  for (const auto record : from) {
    due += count;
    if (due >= all) {
      due -= all;
      taken.push_back(record);
    } else {
      left.push_back(record);
    }
  }
  from = std::move(left);
  return taken;
}

/// Sorts each part in the order of the file, so that neighboring records are read together.
split_lists sorted(split_lists x) {
  std::ranges::sort(x.train);
  std::ranges::sort(x.validation);
  std::ranges::sort(x.test);
  return x;
}

std::vector<std::uint64_t> numbers_from(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

std::vector<std::int32_t> classes_of_all(const dataset& whole) {
  if (whole.record().labels != label_kind::classes || whole.record().labels_per_record != 1)
    throw input_error("data.split.stratify: the records have no classes; leave it out");
  return read_labels(whole).classes;
}

} // namespace

split_lists draw_split(const proto::Split& split, split_sizes sizes, std::uint64_t count) {
  const permutation order{count, split.seed(), no_epoch};
  const auto drawn = [&](std::uint64_t first, std::uint64_t n) {
    std::vector<std::uint64_t> result(n);
    order.fill(first, result);
    return result;
  };
  return sorted({drawn(0, sizes.train), drawn(sizes.train, sizes.validation),
                 drawn(sizes.train + sizes.validation, sizes.test)});
}

namespace {

/// Removes one record of each class that has only one or two records. Returns the removed records.
/// @param from records sorted by class
std::vector<std::uint64_t> take_rare(std::vector<std::uint64_t>& from,
                                     std::span<const std::int32_t> classes) {
  std::vector<std::uint64_t> taken;
  std::vector<std::uint64_t> left;
  for (std::size_t i = 0; i < from.size();) {
    auto end = i + 1;
    while (end < from.size() && classes[from[end]] == classes[from[i]])
      ++end;
    if (end - i <= 2)
      taken.push_back(from[i++]);
    left.insert(left.end(), from.begin() + static_cast<std::ptrdiff_t>(i),
                from.begin() + static_cast<std::ptrdiff_t>(end));
    i = end;
  }
  from = std::move(left);
  return taken;
}

} // namespace

// Sorts shuffled records by class, then takes records at even distances for each part. Each part
// thus gets its share of each class, to within one record. A class may have only one or two
// records. Then one of them is used for training if possible, because a model cannot predict a
// class that it has not seen.
split_lists draw_stratified(const proto::Split& split, split_sizes sizes,
                            std::span<const std::int32_t> classes) {
  std::vector<std::uint64_t> order(classes.size());
  permutation{classes.size(), split.seed(), no_epoch}.fill(0, order);
  std::ranges::stable_sort(order, {}, [&](std::uint64_t record) { return classes[record]; });
  const auto all = order;
  auto rare = take_rare(order, classes);
  if (order.size() < sizes.test + sizes.validation) {
    order = all;
    rare.clear();
  }
  rare.resize(std::min<std::size_t>(rare.size(), sizes.train));
  split_lists result;
  result.test = take_evenly(order, sizes.test);
  result.validation = take_evenly(order, sizes.validation);
  result.train = take_evenly(order, sizes.train - rare.size());
  result.train.insert(result.train.end(), rare.begin(), rare.end());
  return sorted(std::move(result));
}

split_lists lists_of(const proto::Data& data, std::uint64_t count,
                     const std::function<std::vector<std::int32_t>()>& classes) {
  const auto sizes = split_of(data, count, false);
  if (data.split().stratify())
    return draw_stratified(data.split(), sizes, classes());
  if (data.has_split() && is_shuffled(data))
    return draw_split(data.split(), sizes, count);
  return {numbers_from(0, sizes.train), numbers_from(sizes.train, sizes.validation),
          numbers_from(count - sizes.test, sizes.test)};
}

job_data apply_split(const proto::Data& data, const std::shared_ptr<const dataset>& whole,
                     std::shared_ptr<const dataset> test) {
  const auto sizes = split_of(data, whole->size(), test != nullptr);
  auto notices = split_notices(data, sizes, whole->size());
  const bool parts = sizes.train < whole->size();
  if (!parts || !is_shuffled(data)) {
    auto result = split_in_order(whole, sizes, std::move(test));
    result.notices = std::move(notices);
    return result;
  }
  const auto lists = data.split().stratify()
    ? draw_stratified(data.split(), sizes, classes_of_all(*whole))
    : draw_split(data.split(), sizes, whole->size());
  job_data result;
  result.notices = std::move(notices);
  result.train = subset(whole, lists.train);
  if (!lists.validation.empty())
    result.validation = subset(whole, lists.validation);
  if (test)
    result.test = std::move(test);
  else
    result.test = lists.test.empty() ? result.train : subset(whole, lists.test);
  return result;
}

job_data split_in_order(const std::shared_ptr<const dataset>& whole, split_sizes sizes,
                        std::shared_ptr<const dataset> test) {
  const std::uint64_t records = whole->size();
  job_data result;
  result.train = sizes.train == records ? whole : subset(whole, 0, sizes.train);
  if (sizes.validation > 0)
    result.validation = subset(whole, sizes.train, sizes.validation);
  if (test)
    result.test = std::move(test);
  else
    result.test = sizes.test == 0 ? result.train : subset(whole, records - sizes.test, sizes.test);
  return result;
}

} // namespace troupe
