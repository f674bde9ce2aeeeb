#include "kernels/data/subset.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace troupe {

namespace {

class subset_dataset final : public dataset {
public:
  subset_dataset(std::shared_ptr<const dataset> whole, std::uint64_t first, std::uint64_t count)
    : whole_(std::move(whole)), first_(first), count_(count) {}

  std::uint64_t size() const noexcept override { return count_; }
  std::size_t feature_width() const noexcept override { return whole_->feature_width(); }
  label_kind labels() const noexcept override { return whole_->labels(); }
  std::size_t label_width() const noexcept override { return whole_->label_width(); }
  std::size_t memory_bytes() const noexcept override { return whole_->memory_bytes(); }
  const dataset& storage() const noexcept override { return whole_->storage(); }

  void read(std::span<const std::uint64_t> records, std::span<float> features,
            label_batch labels) const override {
    std::array<std::uint64_t, 256> renumbered;
    while (!records.empty()) {
      const std::size_t n = std::min(records.size(), renumbered.size());
      std::ranges::transform(records.first(n), renumbered.begin(),
                             [this](std::uint64_t record) { return first_ + record; });
      const std::size_t classes = labels.classes.empty() ? 0 : n;
      const std::size_t targets = labels.targets.empty() ? 0 : n * label_width();
      whole_->read(std::span{renumbered}.first(n), features.first(n * feature_width()),
                   {labels.classes.first(classes), labels.targets.first(targets)});
      records = records.subspan(n);
      features = features.subspan(n * feature_width());
      labels = {labels.classes.subspan(classes), labels.targets.subspan(targets)};
    }
  }

private:
  std::shared_ptr<const dataset> whole_;
  std::uint64_t first_;
  std::uint64_t count_;
};

} // namespace

std::shared_ptr<const dataset> subset(std::shared_ptr<const dataset> whole, std::uint64_t first,
                                      std::uint64_t count) {
  if (first > whole->size() || count > whole->size() - first)
    throw input_error("records " + std::to_string(first) + " and " + std::to_string(count)
                      + " from there do not lie within the " + std::to_string(whole->size())
                      + " records of the data");
  return std::make_shared<subset_dataset>(std::move(whole), first, count);
}

} // namespace troupe
