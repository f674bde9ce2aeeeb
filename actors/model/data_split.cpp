#include "actors/model/data_split.hpp"

#include "kernels/data/subset.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// A number of records, or a part of `count`, in records.
std::uint64_t records_of(double given, std::uint64_t count) {
  return static_cast<std::uint64_t>(given < 1 ? std::round(given * static_cast<double>(count))
                                              : given);
}

std::string text_of(double x) {
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
  // Numbers beyond those of records are compared before they are converted.
  if (asked(split.train()) + asked(split.validation()) + asked(split.test()) > all + 0.5)
    throw input_error(
      "data.split: train " + text_of(split.train())
      + (split.has_validation() ? ", validation " + text_of(split.validation()) : std::string{})
      + " and test " + text_of(split.test()) + " are more than the data's " + std::to_string(count)
      + " records");
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
  // Parts that were rounded up may overlap by a record.
  if (const auto sum = result.train + result.validation + result.test; sum > count)
    result.train -= std::min(result.train, sum - count);
  require(result.train, "train");
  if (split.has_validation())
    require(result.validation, "validation");
  if (!test_files)
    require(result.test, "test");
  return result;
}

job_data apply_split(const std::shared_ptr<const dataset>& whole, split_sizes sizes,
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
