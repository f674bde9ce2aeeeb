#include "kernels/data/normalized.hpp"

#include "kernels/data/record_buffer.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint64_t group = 64; // number of records to read at a time

/// Calls f(row) with the features of each record, in order.
template <class F>
void each_record(const dataset& set, F f) {
  const auto width = set.record().feature_width();
  record_buffer buffer{set.record(), group};
  for (std::uint64_t first = 0; first < set.size(); first += group) {
    const auto n = std::min(group, set.size() - first);
    buffer.read(set, first, n);
    for (std::uint64_t i = 0; i < n; ++i)
      f(std::span<const float>{buffer.features().numbers}.subspan(i * width, width));
  }
}

class normalized_dataset final : public dataset {
public:
  normalized_dataset(std::shared_ptr<const dataset> whole, const feature_scaling& how)
    : whole_(std::move(whole)), shift_(how.shift.begin(), how.shift.end()) {
    for (const double x : how.scale)
      factor_.push_back(static_cast<float>(1 / x));
  }

  std::uint64_t size() const noexcept override { return whole_->size(); }
  const record_shape& record() const noexcept override { return whole_->record(); }
  std::size_t memory_bytes() const noexcept override { return whole_->memory_bytes(); }
  const dataset& storage() const noexcept override { return whole_->storage(); }
  std::uint64_t origin(std::uint64_t record) const override { return whole_->origin(record); }
  std::uint64_t entries(std::span<const std::uint64_t> records) const override {
    return whole_->entries(records);
  }

  void read(std::span<const std::uint64_t> records, feature_batch features,
            label_batch labels) const override {
    whole_->read(records, features, labels);
    if (record().features == feature_kind::sparse) {
      scale(features.sparse, records.size());
      return;
    }
    const auto each = record().feature_width() / shift_.size();
    float* x = features.numbers.data();
    for (std::size_t i = 0; i < records.size(); ++i)
      for (std::size_t k = 0; k < shift_.size(); ++k)
        for (std::size_t j = 0; j < each; ++j, ++x)
          *x = (*x - shift_[k]) * factor_[k];
  }

  bool read_labels(std::span<const std::uint64_t> records, label_batch labels) const override {
    return whole_->read_labels(records, labels);
  }

private:
  void scale(const sparse_batch& x, std::size_t rows) const {
    for (auto i = x.row_starts[0]; i < x.row_starts[rows]; ++i) {
      const auto entry = static_cast<std::size_t>(i);
      const auto column = static_cast<std::size_t>(x.columns[entry]);
      x.values[entry] = (x.values[entry] - shift_[column]) * factor_[column];
    }
  }

  std::shared_ptr<const dataset> whole_;
  std::vector<float> shift_;
  std::vector<float> factor_;
};

} // namespace

feature_scaling standardization(const dataset& records) {
  const auto width = records.record().feature_width();
  const auto n = static_cast<double>(records.size());
  feature_scaling result{std::vector<double>(width), std::vector<double>(width)};
  each_record(records, [&](auto row) {
    for (std::size_t j = 0; j < width; ++j)
      result.shift[j] += static_cast<double>(row[j]) / n;
  });
  each_record(records, [&](auto row) {
    for (std::size_t j = 0; j < width; ++j) {
      const double d = static_cast<double>(row[j]) - result.shift[j];
      result.scale[j] += d * d / n;
    }
  });
  for (std::size_t j = 0; j < width; ++j) {
    const double deviation = std::sqrt(result.scale[j]);
    // A constant feature that float32 cannot represent exactly shows small deviations, because of
    // rounding.
    const bool constant = !(deviation > 1e-6 * std::abs(result.shift[j]));
    result.scale[j] = constant ? 1 : deviation;
  }
  return result;
}

feature_scaling unit_range(const dataset& records) {
  const auto width = records.record().feature_width();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> least(width, infinity);
  std::vector<double> largest(width, -infinity);
  each_record(records, [&](auto row) {
    for (std::size_t j = 0; j < width; ++j) {
      least[j] = std::min(least[j], static_cast<double>(row[j]));
      largest[j] = std::max(largest[j], static_cast<double>(row[j]));
    }
  });
  feature_scaling result{least, std::vector<double>(width)};
  for (std::size_t j = 0; j < width; ++j)
    result.scale[j] = largest[j] > least[j] ? largest[j] - least[j] : 1;
  return result;
}

std::shared_ptr<const dataset> normalized(std::shared_ptr<const dataset> whole,
                                          const feature_scaling& how) {
  const auto& shape = whole->record();
  if (shape.features == feature_kind::tokens)
    throw input_error("data: only numbers can be normalized, but the features are "
                      + std::string{to_string(shape.features)});
  const bool sparse = shape.features == feature_kind::sparse;
  if (how.shift.empty() || how.shift.size() != how.scale.size()
      || shape.feature_width() % how.shift.size() != 0
      || (sparse && shape.feature_width() != how.shift.size()))
    throw input_error("data: " + std::to_string(how.shift.size()) + " shifts and "
                      + std::to_string(how.scale.size()) + " scales do not fit records of "
                      + to_string(shape.dims));
  return std::make_shared<const normalized_dataset>(std::move(whole), how);
}

} // namespace troupe
