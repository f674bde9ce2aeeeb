#include "kernels/cuda/sparse_feed.hpp"

#include <algorithm>

namespace troupe::cuda {

namespace {

/// The number of entries for which memory is allocated if a batch with `entries` entries does not
/// fit. After a few runs, the memory is large enough for the largest batch.
std::size_t capacity_for(std::size_t entries) {
  return std::max<std::size_t>(entries + entries / 2, 1);
}

/// The number of elements in sparse_feed::groups_.
std::size_t group_elements(std::size_t capacity) {
  return 2 + 3 * capacity;
}

} // namespace

std::size_t sparse_feed::entry_bytes(std::size_t entries, bool by_column) noexcept {
  const auto n = capacity_for(entries);
  const auto integers = n + (by_column ? group_elements(n) : 0);
  const auto floats = n * (by_column ? 2 : 1);
  return integers * sizeof(std::int32_t) + floats * sizeof(float);
}

sparse_feed::sparse_feed(device& where, std::size_t max_rows, std::size_t features, bool by_column)
  : gpu_(&where), features_(features), by_column_(by_column), starts_(where, max_rows + 1) {}

bool sparse_feed::copy(stream where, const sparse_rows<float>& x, std::size_t rows) {
  // If there are no rows, x.starts may be null.
  constexpr std::int32_t nothing = 0;
  const auto* const starts = rows > 0 ? x.starts : &nothing;
  const auto n = static_cast<std::size_t>(starts[rows]);
  const bool moved = grow(n);
  starts_.send(where, {starts, rows + 1});
  columns_.send(where, {x.columns, n});
  values_.send(where, {x.values, n});
  if (by_column_)
    copy_columns(where, x, rows);
  return moved;
}

/// If the memory is too small, allocates at least twice as much as before, and returns true. So a
/// run whose batches have up to N times as many entries as the first one allocates at most about
/// log2(N) times more.
bool sparse_feed::grow(std::size_t entries) {
  if (entries <= capacity_ && columns_.size() > 0)
    return false;
  const auto n = std::max(capacity_for(entries), 2 * capacity_);
  // The old memory is released before the new memory is allocated.
  capacity_ = 0;
  columns_ = {};
  values_ = {};
  groups_ = {};
  group_values_ = {};
  columns_ = {*gpu_, n};
  values_ = {*gpu_, n};
  if (by_column_) {
    groups_ = {*gpu_, group_elements(n)};
    group_values_ = {*gpu_, n};
  }
  capacity_ = n;
  return true;
}

void sparse_feed::copy_columns(stream where, const sparse_rows<float>& x, std::size_t rows) {
  sort(x, rows);
  groups_.send(where, 0, groups_.size());
  group_values_.send(where, 0, order_.size());
}

/// Sorts the entries by column. Writes to `groups_`: the number of columns with entries; these
/// columns; the number of the first entry of each column; the row of each entry. Writes to
/// `group_values_`: the value of each entry.
void sparse_feed::sort(const sparse_rows<float>& x, std::size_t rows) {
  order_.clear();
  row_of_.clear();
  for (std::size_t r = 0; r < rows; ++r)
    for (auto e = x.starts[r]; e < x.starts[r + 1]; ++e) {
      row_of_.push_back(static_cast<std::int32_t>(r));
      if (x.columns[e] >= 0 && static_cast<std::size_t>(x.columns[e]) < features_)
        order_.push_back(static_cast<std::size_t>(e));
    }
  std::ranges::stable_sort(order_, {}, [&](std::size_t e) { return x.columns[e]; });
  std::ranges::fill(groups_.host(), 0);
  std::int32_t* const columns = groups_.host().data() + 1;
  std::int32_t* const starts = columns + capacity_;
  std::int32_t* const rows_of = starts + capacity_ + 1;
  std::size_t groups = 0;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const auto e = order_[i];
    if (groups == 0 || columns[groups - 1] != x.columns[e]) {
      columns[groups] = x.columns[e];
      starts[groups++] = static_cast<std::int32_t>(i);
    }
    rows_of[i] = row_of_[e];
    group_values_.host()[i] = x.values[e];
  }
  starts[groups] = static_cast<std::int32_t>(order_.size());
  groups_.host()[0] = static_cast<std::int32_t>(groups);
}

sparse_entries sparse_feed::entries() const noexcept {
  return {starts_.data(), columns_.data(), values_.data(), capacity_};
}

entries_by_column sparse_feed::columns() const noexcept {
  const auto* const columns = groups_.data() + 1;
  const auto* const starts = columns + capacity_;
  return {groups_.data(), columns, starts, starts + capacity_ + 1, group_values_.data(), capacity_};
}

} // namespace troupe::cuda
