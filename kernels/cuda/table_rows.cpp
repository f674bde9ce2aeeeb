#include "kernels/cuda/table_rows.hpp"

#include <algorithm>
#include <limits>

namespace troupe::cuda {

namespace {

std::size_t grown(std::size_t n) {
  return n + n / 2;
}

/// If the buffer has fewer than n elements, replaces it by a larger one. Its contents are lost.
template <class T>
void grow(device& gpu, staged_buffer<T>& x, std::size_t n) {
  if (n <= x.size())
    return;
  const auto larger = std::max(grown(n), 2 * x.size());
  x = {}; // the old memory is released before the new memory is allocated
  x = {gpu, larger};
}

} // namespace

void copy_weight(const plan& what, const run_arguments<float>& from, std::size_t weight,
                 range where, float* to) {
  const auto& tensor = what.parameters().entries()[weight];
  bool in_parts = false;
  for (const auto& part : from.parts) {
    if (part.weight != weight)
      continue;
    in_parts = true;
    const auto width = tensor.size / static_cast<std::size_t>(tensor.shape[0]);
    const range here{part.rows.begin * width, part.rows.end * width};
    const auto both = intersect(where, here);
    std::copy_n(part.values + (both.begin - here.begin), both.size(),
                to + (both.begin - where.begin));
  }
  if (!in_parts)
    std::copy_n(from.weights[weight] + where.begin, where.size(), to);
}

table_rows::table_rows(device& where, const plan& what)
  : gpu_(&where), what_(&what), is_table_(what.parameters().entries().size()) {
  for (const auto& table : what.row_sparse_gradients()) {
    tables_.push_back(what.parameters().entries()[table.parameter].elements());
    is_table_[table.parameter] = true;
  }
  for (const auto& bucket : what.buckets()) {
    range_list outside;
    auto begin = bucket.elements.begin;
    const auto add_until = [&](std::size_t end) {
      if (begin < end)
        outside.push_back({begin, end});
    };
    for (const auto& table : tables_)
      if (bucket.elements.contains(table)) {
        add_until(table.begin);
        begin = table.end;
      }
    add_until(bucket.elements.end);
    outside_.push_back(std::move(outside));
  }
}

std::size_t table_rows::memory_bytes(const plan& what, std::size_t sparse_entries,
                                     std::size_t batches) noexcept {
  std::size_t rows = 0;
  std::size_t elements = 0;
  std::size_t all = 0;
  for (const auto& table : what.row_sparse_gradients()) {
    const auto& tensor = what.parameters().entries()[table.parameter];
    const auto& feed = what.feed(table.feed);
    const auto height = static_cast<std::size_t>(tensor.shape[0]);
    const auto of_batch =
      feed.type == dtype::sparse ? sparse_entries : feed.shape.elements(what.max_rows());
    const auto named = std::min(height, batches * of_batch);
    rows += named;
    elements += named * (tensor.size / height);
    all += tensor.size;
  }
  // More elements, or more positions, are never packed: is_worth_packing().
  elements = std::min(elements, all / 2);
  rows = std::min(rows, all / 4);
  return grown(elements) * sizeof(float) + grown(2 * rows) * sizeof(std::uint32_t);
}

bool table_rows::is_worth_packing(const range_list& rows) const {
  const auto here = intersect(rows, tables_);
  return !tables_.empty() && what_->parameters().size() <= std::numeric_limits<std::uint32_t>::max()
    && 2 * (elements_of(here) + 2 * here.size()) <= elements_of(tables_);
}

void table_rows::select(stream where, const range_list& rows) {
  rows_ = intersect(rows, tables_);
  grow(*gpu_, positions_, 2 * rows_.size());
  grow(*gpu_, packed_, elements_of(rows_));
  sections_.clear();
  std::size_t packed = 0;
  const auto positions = positions_.host();
  auto to = positions.begin();
  for (const auto& bucket : what_->buckets()) {
    const auto position_of = [&](std::size_t element) {
      return static_cast<std::size_t>(std::ranges::lower_bound(rows_, element, {}, &range::begin)
                                      - rows_.begin());
    };
    section x{{position_of(bucket.elements.begin), position_of(bucket.elements.end)},
              {packed, packed},
              static_cast<std::size_t>(to - positions.begin())};
    for (auto i = x.rows.begin; i < x.rows.end; ++i)
      *to++ = static_cast<std::uint32_t>(rows_[i].begin);
    for (auto i = x.rows.begin; i < x.rows.end; ++i) {
      *to++ = static_cast<std::uint32_t>(packed - x.packed.begin);
      packed += rows_[i].size();
    }
    x.packed.end = packed;
    sections_.push_back(x);
  }
  positions_.send(where, 0, 2 * rows_.size());
}

packed_ranges table_rows::ranges_of(const section& x) const {
  const std::uint32_t* const begins = positions_.data() + x.first;
  return {{begins, x.rows.size()}, {begins + x.rows.size(), x.rows.size()}, x.packed.size()};
}

void table_rows::send_weights(stream where, const run_arguments<float>& from, float* weights) {
  const auto& entries = what_->parameters().entries();
  for (const auto& x : sections_) {
    auto* to = packed_.host().data() + x.packed.begin;
    for (auto i = x.rows.begin; i < x.rows.end; ++i) {
      const auto table = std::ranges::upper_bound(entries, rows_[i].begin, {},
                                                  [](const auto& y) { return y.elements().end; });
      const auto first = table->elements().begin;
      copy_weight(*what_, from, static_cast<std::size_t>(table - entries.begin()),
                  {rows_[i].begin - first, rows_[i].end - first}, to);
      to += rows_[i].size();
    }
  }
  packed_.send(where, 0, elements_of(rows_));
  for (const auto& x : sections_)
    if (!x.packed.empty())
      unpack_ranges(where, ranges_of(x), 1, what_->parameters().size(),
                    packed_.data() + x.packed.begin, weights);
}

void table_rows::clear_gradient(stream where, float* gradient) const {
  for (const auto& x : sections_)
    if (!x.packed.empty())
      clear_ranges(where, ranges_of(x), what_->parameters().size(), gradient);
}

void table_rows::pack_gradient(stream where, std::size_t bucket, const float* gradient) const {
  const auto& x = sections_[bucket];
  if (!x.packed.empty())
    pack_ranges(where, ranges_of(x), 1, what_->parameters().size(), gradient,
                packed_.data() + x.packed.begin);
}

void table_rows::fetch_gradient(stream where, std::size_t bucket) const {
  const auto& x = sections_[bucket];
  packed_.fetch(where, x.packed.begin, x.packed.size());
}

void table_rows::write_gradient(std::size_t bucket, std::span<float> gradient) const {
  const auto& x = sections_[bucket];
  auto from = packed_.host().subspan(x.packed.begin, x.packed.size());
  for (auto i = x.rows.begin; i < x.rows.end; ++i) {
    std::ranges::copy(from.first(rows_[i].size()), gradient.subspan(rows_[i].begin).begin());
    from = from.subspan(rows_[i].size());
  }
}

} // namespace troupe::cuda
