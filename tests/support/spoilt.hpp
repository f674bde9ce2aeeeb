#pragma once

#include "kernels/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>

namespace troupe::test {

inline constexpr std::uint64_t all_records = ~std::uint64_t{0};

/// A data set in which the first feature of one record, or of every record, has the value
/// `feature`. By default, this is NaN.
class spoilt : public dataset {
public:
  spoilt(std::shared_ptr<const dataset> source, std::uint64_t record,
         float feature = std::numeric_limits<float>::quiet_NaN())
    : source_(std::move(source)), record_(record), feature_(feature) {}

  std::uint64_t size() const noexcept override { return source_->size(); }
  const record_shape& record() const noexcept override { return source_->record(); }
  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    source_->read(records, features, labels);
    for (std::size_t i = 0; i < records.size(); ++i)
      if (record_ == all_records || records[i] == record_)
        features.numbers[i * record().feature_width()] = feature_;
  }

private:
  std::shared_ptr<const dataset> source_;
  std::uint64_t record_;
  float feature_;
};

} // namespace troupe::test
