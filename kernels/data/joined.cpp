#include "kernels/data/joined.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

class joined_dataset final : public dataset {
public:
  explicit joined_dataset(std::vector<std::shared_ptr<const dataset>> parts)
    : parts_(std::move(parts)) {
    for (const auto& x : parts_)
      ends_.push_back(size() + x->size());
  }

  std::uint64_t size() const noexcept override { return ends_.empty() ? 0 : ends_.back(); }
  const record_shape& record() const noexcept override { return parts_[0]->record(); }
  std::size_t memory_bytes() const noexcept override {
    std::size_t result = 0;
    for (const auto& x : parts_)
      result += x->memory_bytes();
    return result;
  }

  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    const auto width = record().feature_width();
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto [part, number] = find(records[i]);
      feature_batch row;
      if (record().features == feature_kind::tokens)
        row.tokens = features.tokens.subspan(i * width, width);
      else
        row.numbers = features.numbers.subspan(i * width, width);
      parts_[part]->read({&number, 1}, row, labels_of(labels, i));
    }
  }

  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override {
    if (!std::ranges::all_of(parts_, [](auto& x) { return x->read_labels({}, {}); }))
      return false;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto [part, number] = find(records[i]);
      parts_[part]->read_labels({&number, 1}, labels_of(labels, i));
    }
    return true;
  }

private:
  /// The number of the data set that contains a record, and the number of the record in it.
  std::pair<std::size_t, std::uint64_t> find(std::uint64_t record) const {
    const auto i = std::ranges::upper_bound(ends_, record);
    const auto begin = i == ends_.begin() ? 0 : *(i - 1);
    return {static_cast<std::size_t>(i - ends_.begin()), record - begin};
  }

  /// The labels of row i of a batch.
  label_batch labels_of(const label_batch& x, std::size_t i) const {
    const auto n = record().label_elements();
    label_batch result;
    if (record().labels == label_kind::classes)
      result.classes = x.classes.subspan(i * n, n);
    else
      result.targets = x.targets.subspan(i * n, n);
    return result;
  }

  std::vector<std::shared_ptr<const dataset>> parts_;
  /// For each data set in `parts_`: the number of records up to its end.
  std::vector<std::uint64_t> ends_;
};

} // namespace

std::shared_ptr<const dataset> joined(std::vector<std::shared_ptr<const dataset>> parts) {
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (parts[i]->record() != parts[0]->record())
      throw input_error("part " + std::to_string(i) + " has records of "
                        + to_string(parts[i]->record()) + ", but part 0 of "
                        + to_string(parts[0]->record()));
  if (parts.size() == 1)
    return std::move(parts[0]);
  return std::make_shared<const joined_dataset>(std::move(parts));
}

} // namespace troupe
