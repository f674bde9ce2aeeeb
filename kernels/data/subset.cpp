#include "kernels/data/subset.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Removes the first n elements of `x` and returns them. Returns no elements if x is empty.
template <class T>
std::span<T> take(std::span<T>& x, std::size_t n) {
  const auto result = x.first(std::min(n, x.size()));
  x = x.subspan(result.size());
  return result;
}

/// The record numbers first .. first + count - 1, with the interface of a vector of numbers.
struct record_range {
  std::uint64_t first;
  std::uint64_t count;

  std::uint64_t size() const noexcept { return count; }
  std::uint64_t operator[](std::uint64_t record) const noexcept { return first + record; }
};

/// Some records of another data set.
/// @tparam Numbers a record_range or a vector: element i is the number of record i in the other
/// data set.
template <class Numbers>
class subset_dataset final : public dataset {
public:
  subset_dataset(std::shared_ptr<const dataset> whole, Numbers numbers)
    : whole_(std::move(whole)), numbers_(std::move(numbers)) {}

  std::uint64_t size() const noexcept override { return numbers_.size(); }
  const record_shape& record() const noexcept override { return whole_->record(); }
  std::size_t memory_bytes() const noexcept override { return whole_->memory_bytes(); }
  const dataset& storage() const noexcept override { return whole_->storage(); }
  std::uint64_t origin(std::uint64_t record) const override {
    return whole_->origin(numbers_[record]);
  }

  std::uint64_t entries(std::span<const std::uint64_t> records) const override {
    std::uint64_t result = 0;
    each_part(records, [&](auto part) { result += whole_->entries(part); });
    return result;
  }

  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    each_part(records, [&](auto part) {
      const auto n = part.size();
      feature_batch some_features;
      some_features.numbers = take(features.numbers, n * record().feature_width());
      some_features.tokens = take(features.tokens, n * record().feature_width());
      if (record().features == feature_kind::sparse) {
        some_features.sparse = {features.sparse.row_starts.first(n + 1), features.sparse.columns,
                                features.sparse.values};
        features.sparse.row_starts = features.sparse.row_starts.subspan(n);
      }
      whole_->read(part, some_features, take_labels(labels, n));
    });
  }

  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override {
    const bool result = whole_->read_labels({}, {});
    if (result)
      each_part(records,
                [&](auto part) { whole_->read_labels(part, take_labels(labels, part.size())); });
    return result;
  }

private:
  /// Takes the labels of the next n records from the front of x.
  label_batch take_labels(label_batch& x, std::size_t n) const {
    label_batch result;
    result.classes = take(x.classes, n * record().label_elements());
    result.targets = take(x.targets, n * record().label_elements());
    return result;
  }

  /// Converts the numbers of records to their numbers in the whole data set, and calls f with these
  /// numbers. It does so in groups that fit into a fixed buffer.
  template <class F>
  void each_part(std::span<const std::uint64_t> records, F f) const {
    std::array<std::uint64_t, 256> renumbered;
    while (!records.empty()) {
      const std::size_t n = std::min(records.size(), renumbered.size());
      std::ranges::transform(records.first(n), renumbered.begin(),
                             [this](std::uint64_t record) { return numbers_[record]; });
      f(std::span<const std::uint64_t>{renumbered}.first(n));
      records = records.subspan(n);
    }
  }

  std::shared_ptr<const dataset> whole_;
  Numbers numbers_;
};

} // namespace

std::shared_ptr<const dataset> subset(std::shared_ptr<const dataset> whole, std::uint64_t first,
                                      std::uint64_t count) {
  if (first > whole->size() || count > whole->size() - first)
    throw input_error("records " + std::to_string(first) + " and " + std::to_string(count)
                      + " from there do not lie within the " + std::to_string(whole->size())
                      + " records of the data");
  return std::make_shared<subset_dataset<record_range>>(std::move(whole),
                                                        record_range{first, count});
}

std::shared_ptr<const dataset> subset(std::shared_ptr<const dataset> whole,
                                      std::vector<std::uint64_t> records) {
  for (const auto record : records)
    if (record >= whole->size())
      throw input_error("record " + std::to_string(record) + " does not lie within the "
                        + std::to_string(whole->size()) + " records of the data");
  return std::make_shared<subset_dataset<std::vector<std::uint64_t>>>(std::move(whole),
                                                                      std::move(records));
}

} // namespace troupe
