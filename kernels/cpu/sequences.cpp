#include "kernels/cpu/sequences.hpp"

#include "kernels/cpu/losses.hpp"
#include "kernels/cpu/sums.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace troupe::cpu {

namespace {

struct moments {
  double mean;
  /// 1 / sqrt(variance + epsilon).
  double scale;
};

template <class T>
moments moments_of(std::size_t n, const T* x, double epsilon) {
  const double mean = sum_of(n, x) / static_cast<double>(n);
  const double squares = sum_terms(
    n,
    [&](std::size_t j) {
      const auto d = load_doubles(x + j) - mean;
      return d * d;
    },
    [&](std::size_t j) {
      const auto d = static_cast<double>(x[j]) - mean;
      return d * d;
    });
  return {mean, 1 / std::sqrt(squares / static_cast<double>(n) + epsilon)};
}

bool is_entry(std::int32_t id, std::size_t entries) {
  return id >= 0 && static_cast<std::size_t>(id) < entries;
}

} // namespace

template <class T>
void gather_strided(std::span<const std::size_t> extents, std::span<const std::size_t> strides,
                    const T* x, T* out) {
  const auto rank = extents.size();
  std::size_t total = 1;
  for (auto extent : extents)
    total *= extent;
  const auto inner = extents[rank - 1];
  const auto step = strides[rank - 1];
  std::array<std::size_t, most_axes> index{};
  std::size_t from = 0;
  for (std::size_t to = 0; to < total; to += inner) {
    if (step == 1)
      std::copy_n(x + from, inner, out + to);
    else
      for (std::size_t j = 0; j < inner; ++j)
        out[to + j] = x[from + j * step];
    for (auto axis = rank - 1; axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < extents[axis])
        break;
      from -= extents[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

template <class T>
void copy_rows(std::size_t rows, std::size_t size, const T* from, std::size_t from_stride, T* to,
               std::size_t to_stride) {
  for (std::size_t r = 0; r < rows; ++r)
    std::copy_n(from + r * from_stride, size, to + r * to_stride);
}

namespace {

/// Computes one row of a result of blend(). The row has `inner` elements. `term` points to the
/// first pair (position, weight) of the row in the table of blend_sizes.
template <class T>
void blend_entry(const T* term, std::size_t taps, std::size_t inner, const T* x, T* out) {
  if (term[0] < 0) {
    std::fill_n(out, inner, T(0));
    return;
  }
  for (std::size_t k = 0; k < taps && term[0] >= 0; ++k, term += 2) {
    const T* const from = x + static_cast<std::size_t>(term[0]) * inner;
    const T weight = term[1];
    if (k == 0) {
      TROUPE_INDEPENDENT
      for (std::size_t j = 0; j < inner; ++j)
        out[j] = weight * from[j];
    } else {
      TROUPE_INDEPENDENT
      for (std::size_t j = 0; j < inner; ++j)
        out[j] += weight * from[j];
    }
  }
}

} // namespace

template <class T>
void blend(std::size_t rows, const blend_sizes& size, const T* x, const T* table, T* out) {
  for (std::size_t r = 0; r < rows; ++r, x += size.from * size.inner)
    for (std::size_t i = 0; i < size.to; ++i, out += size.inner)
      blend_entry(table + 2 * i * size.taps, size.taps, size.inner, x, out);
}

template <class T>
void embedding(std::span<const std::int32_t> ids, std::size_t entries, range rows,
               std::size_t columns, const T* table, T* out) {
  for (std::size_t i = 0; i < ids.size(); ++i, out += columns) {
    if (!is_entry(ids[i], entries)) {
      std::fill_n(out, columns, std::numeric_limits<T>::quiet_NaN());
      continue;
    }
    const auto id = static_cast<std::size_t>(ids[i]);
    if (rows.begin <= id && id < rows.end)
      std::copy_n(table + (id - rows.begin) * columns, columns, out);
  }
}

template <class T>
void embedding_gradient(std::span<const std::int32_t> ids, std::size_t entries, std::size_t columns,
                        range part, const T* dy, T* out, bool cleared) {
  for (std::size_t i = 0; i < entries && !cleared; ++i)
    std::fill(out + i * columns + part.begin, out + i * columns + part.end, T(0));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!is_entry(ids[i], entries))
      continue;
    T* const row = out + static_cast<std::size_t>(ids[i]) * columns;
    const T* const from = dy + i * columns;
    TROUPE_INDEPENDENT
    for (std::size_t j = part.begin; j < part.end; ++j)
      row[j] += from[j];
  }
}

template <class T>
void multiply_rows(std::size_t rows, std::size_t columns, const T* x, const T* g, T* out) {
  for (std::size_t r = 0; r < rows; ++r) {
    const T* const from = x + r * columns;
    T* const to = out + r * columns;
    TROUPE_INDEPENDENT
    for (std::size_t j = 0; j < columns; ++j)
      to[j] = from[j] * g[j];
  }
}

template <class T>
void normalize_rows(std::size_t rows, std::size_t columns, const T* x, double epsilon, T* out) {
  for (std::size_t r = 0; r < rows; ++r) {
    const T* const from = x + r * columns;
    T* const to = out + r * columns;
    const auto m = moments_of(columns, from, epsilon);
    const auto mean = static_cast<T>(m.mean);
    const auto scale = static_cast<T>(m.scale);
    TROUPE_INDEPENDENT
    for (std::size_t j = 0; j < columns; ++j)
      to[j] = (from[j] - mean) * scale;
  }
}

// out = scale (dy - mean(dy) - y mean(dy y)), with y = (x - mean) scale.
template <class T>
void normalize_rows_gradient(std::size_t rows, std::size_t columns, const T* dy, const T* x,
                             double epsilon, T* out) {
  const auto n = static_cast<double>(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    const T* const from = x + r * columns;
    const T* const g = dy + r * columns;
    T* const to = out + r * columns;
    const auto m = moments_of(columns, from, epsilon);
    const double sum = sum_of(columns, g);
    const double product =
      m.scale
      * sum_terms(
        columns,
        [&](std::size_t j) { return load_doubles(g + j) * (load_doubles(from + j) - m.mean); },
        [&](std::size_t j) {
          return static_cast<double>(g[j]) * (static_cast<double>(from[j]) - m.mean);
        });
    const auto mean = static_cast<T>(m.mean);
    const auto scale = static_cast<T>(m.scale);
    const auto g_mean = static_cast<T>(sum / n);
    const auto y_mean = static_cast<T>(product / n);
    TROUPE_INDEPENDENT
    for (std::size_t j = 0; j < columns; ++j)
      to[j] = scale * (g[j] - g_mean - (from[j] - mean) * scale * y_mean);
  }
}

template <class T>
void causal_softmax(std::size_t count, std::size_t size, const T* x, T* out) {
  for (std::size_t i = 0; i < count * size; ++i) {
    const auto visible = i % size + 1;
    softmax<T>(1, visible, x + i * size, out + i * size);
    std::fill(out + i * size + visible, out + (i + 1) * size, T(0));
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): types in declarations must not be in parentheses
#define TROUPE_INSTANTIATE(T)                                                                      \
  template void gather_strided(std::span<const std::size_t>, std::span<const std::size_t>,         \
                               const T*, T*);                                                      \
  template void copy_rows(std::size_t, std::size_t, const T*, std::size_t, T*, std::size_t);       \
  template void blend(std::size_t, const blend_sizes&, const T*, const T*, T*);                    \
  template void embedding(std::span<const std::int32_t>, std::size_t, range, std::size_t,          \
                          const T*, T*);                                                           \
  template void embedding_gradient(std::span<const std::int32_t>, std::size_t, std::size_t, range, \
                                   const T*, T*, bool);                                            \
  template void multiply_rows(std::size_t, std::size_t, const T*, const T*, T*);                   \
  template void normalize_rows(std::size_t, std::size_t, const T*, double, T*);                    \
  template void normalize_rows_gradient(std::size_t, std::size_t, const T*, const T*, double, T*); \
  template void causal_softmax(std::size_t, std::size_t, const T*, T*);
// NOLINTEND(bugprone-macro-parentheses)

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
