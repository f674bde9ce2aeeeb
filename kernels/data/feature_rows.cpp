#include "kernels/data/feature_rows.hpp"

#include "kernels/data/arrays.hpp"
#include "kernels/data/sparse.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace troupe {

feature_rows::feature_rows(feature_kind kind, std::size_t width, std::size_t records)
  : kind_(kind), width_(width) {
  if (kind == feature_kind::sparse)
    sparse_.row_starts.reserve(records + 1);
  else
    numbers_.reserve(records * width);
}

void feature_rows::begin() {
  if (kind_ == feature_kind::sparse)
    sparse_.row_starts.push_back(sparse_.row_starts.back());
  else
    numbers_.resize(numbers_.size() + width_);
}

void feature_rows::set(std::size_t feature, float value) {
  if (kind_ != feature_kind::sparse) {
    numbers_[numbers_.size() - width_ + feature] = value;
    return;
  }
  const auto column = static_cast<std::uint32_t>(feature);
  sparse_.columns.push_back(column);
  sparse_.values.push_back(value);
  sparse_.row_starts.back() = sparse_.columns.size();
  sparse_.width = std::max(sparse_.width, column + 1);
}

std::shared_ptr<const dataset> feature_rows::finish(stored_labels labels,
                                                    std::string_view name) && {
  if (kind_ == feature_kind::sparse)
    return std::make_shared<const sparse_dataset>(std::move(sparse_), width_, std::move(labels),
                                                  name);
  return std::make_shared<const array_dataset>(shape{static_cast<std::int64_t>(width_)},
                                               std::move(numbers_), std::move(labels));
}

} // namespace troupe
