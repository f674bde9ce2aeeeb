#include "kernels/cuda/sparse_feed.hpp"

#include <algorithm>
#include <array>
#include <numeric>

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

/// Copies only the parts of `groups_` that this batch uses. Kernels read no others. The copies are
/// not recorded, so each batch may copy another number of elements.
void sparse_feed::copy_columns(stream where, const sparse_rows<float>& x, std::size_t rows) {
  sort(x, rows);
  const auto groups = write_groups();
  const auto n = sorted_.size();
  groups_.send(where, 0, 1 + groups);             // count, columns
  groups_.send(where, 1 + capacity_, groups + 1); // starts
  groups_.send(where, 2 + 2 * capacity_, n);      // rows
  group_values_.send(where, 0, n);
}

/// Sorts the entries by column: the first ones by the lowest bits of their columns, then by the
/// next bits, and so on (radix sort). Each pass keeps the order of entries with the same bits.
/// Therefore, the entries of a column stay in the order of their rows. The time is proportional to
/// the number of entries, and memory is allocated only if a batch has more entries than all others
/// before.
void sparse_feed::sort(const sparse_rows<float>& x, std::size_t rows) {
  constexpr unsigned bits = 11; // the counters of a pass fit into the first-level cache
  constexpr std::size_t values = std::size_t{1} << bits;
  sorted_.clear();
  for (std::size_t r = 0; r < rows; ++r)
    for (auto e = x.starts[r]; e < x.starts[r + 1]; ++e)
      if (x.columns[e] >= 0 && static_cast<std::size_t>(x.columns[e]) < features_)
        sorted_.push_back({x.columns[e], static_cast<std::int32_t>(r), x.values[e]});
  spare_.resize(sorted_.size());
  for (unsigned shift = 0; shift < 32 && (features_ - 1) >> shift > 0; shift += bits) {
    const auto digit = [&](const entry& y) {
      return (static_cast<std::uint32_t>(y.column) >> shift) % values;
    };
    std::array<std::size_t, values> next{};
    for (const auto& y : sorted_)
      ++next[digit(y)];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), std::size_t{0});
    for (const auto& y : sorted_)
      spare_[next[digit(y)]++] = y;
    sorted_.swap(spare_);
  }
}

/// Writes to `groups_`: the number of columns with entries; these columns; the number of the first
/// entry of each column, and the number of all entries; the row of each entry. Writes to
/// `group_values_`: the value of each entry. Returns the number of columns with entries.
std::size_t sparse_feed::write_groups() const {
  std::int32_t* const columns = groups_.host().data() + 1;
  std::int32_t* const starts = columns + capacity_;
  std::int32_t* const rows = starts + capacity_ + 1;
  float* const values = group_values_.host().data();
  std::size_t groups = 0;
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    const auto& x = sorted_[i];
    if (groups == 0 || columns[groups - 1] != x.column) {
      columns[groups] = x.column;
      starts[groups++] = static_cast<std::int32_t>(i);
    }
    rows[i] = x.row;
    values[i] = x.value;
  }
  starts[groups] = static_cast<std::int32_t>(sorted_.size());
  groups_.host()[0] = static_cast<std::int32_t>(groups);
  return groups;
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
