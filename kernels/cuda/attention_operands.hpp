#pragma once

#include "kernels/cuda/kernel.hpp"
#include "kernels/plan/attention_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>

// The code that all attention kernels share: the positions of heads in tensors, and the masks.

namespace troupe::cuda {

inline constexpr float attention_infinity = std::numeric_limits<float>::infinity();

/// One head of a tensor: `count` rows of `width` columns.
template <class View>
struct head_view {
  View x;
  std::size_t begin, stride;
  unsigned count, width;

  TROUPE_DEVICE head_view(const View& all, const head_rows& where, std::size_t head,
                          const attention_layout& size, std::size_t count)
    : x(all), begin(where.begin + short_of(head) / short_of(size.heads) * where.sample
                    + short_of(head) % short_of(size.heads) * where.head),
      stride(where.row), count(static_cast<unsigned>(count)),
      width(static_cast<unsigned>(size.width)) {}

  /// Converts to 32 bits, because divisions of 32 bits take less time than those of 64 bits.
  static TROUPE_DEVICE unsigned short_of(std::size_t x) { return static_cast<unsigned>(x); }
  TROUPE_DEVICE bool has(unsigned row, unsigned column) const {
    return row < count && column < width;
  }
  TROUPE_DEVICE std::size_t place(unsigned row, unsigned column) const {
    return begin + row * stride + column;
  }
  /// Returns the element, or 0 beyond the last row or column.
  TROUPE_DEVICE auto at(unsigned row, unsigned column) const {
    using element = decltype(x.load(0));
    return has(row, column) ? x.load(place(row, column)) : element{};
  }
};

/// The arguments that all attention kernels have. "A query sees a key" means that the attention of
/// the query may use the key.
template <class View>
struct attention_operands {
  using head = head_view<View>;
  attention_layout size;
  View q, k, v;

  TROUPE_DEVICE unsigned queries() const { return static_cast<unsigned>(size.queries); }
  TROUPE_DEVICE unsigned keys() const { return static_cast<unsigned>(size.keys); }
  TROUPE_DEVICE bool sees(unsigned query, unsigned key) const {
    return query < queries() && key < keys() && (!size.causal || key <= query);
  }
  /// True if each of these queries sees each of these keys: `rows` queries, beginning with number
  /// `query`, and `columns` keys, beginning with number `key`.
  template <unsigned rows, unsigned columns>
  TROUPE_DEVICE bool all_see(unsigned query, unsigned key) const {
    return query + rows <= queries() && key + columns <= keys()
      && (!size.causal || key + columns <= query + 1);
  }
  /// The end of the range of keys that these queries see: `rows` queries, beginning with number
  /// `row`.
  template <unsigned rows>
  TROUPE_DEVICE unsigned end_of_keys(unsigned row) const {
    return size.causal ? std::min(row + rows, keys()) : keys();
  }
  TROUPE_DEVICE head q_of(std::size_t i) const { return {q, size.q, i, size, size.queries}; }
  TROUPE_DEVICE head k_of(std::size_t i) const { return {k, size.k, i, size, size.keys}; }
  TROUPE_DEVICE head v_of(std::size_t i) const { return {v, size.v, i, size, size.keys}; }
  /// A head of the result or of its gradient.
  template <class Other>
  TROUPE_DEVICE head_view<Other> y_of(const Other& x, std::size_t i) const {
    return {x, size.y, i, size, size.queries};
  }
};

/// The gradient of a score (the product of a query and a key). `share` is the attention probability
/// that belongs to the score, `d_share` is the gradient of the share, and `product` is the sum of
/// dy * y over the query's row.
TROUPE_DEVICE float slope_of(float share, float d_share, float product, float factor) {
  return share * (d_share - product) * factor;
}

inline std::size_t elements_of(const attention_layout& size, const head_rows& where) {
  return size.batch * where.sample;
}

/// A number of columns that is known at compile time, in units of attention_columns.
template <unsigned n>
struct known_columns {
  static constexpr unsigned value = n;
};
inline constexpr std::size_t attention_columns = 16;

/// Calls f(known_columns<n>{}). n is 2, 4 or 8: the smallest n for which n * attention_columns is
/// at least `width`, the columns of a head.
template <class F>
void with_columns(std::size_t width, F f) {
  if (width <= 2 * attention_columns)
    f(known_columns<2>{});
  else if (width <= 4 * attention_columns)
    f(known_columns<4>{});
  else if (width <= 8 * attention_columns)
    f(known_columns<8>{});
  else
    throw std::invalid_argument("attention: heads of " + std::to_string(width)
                                + " columns are wider than 128");
}

} // namespace troupe::cuda
