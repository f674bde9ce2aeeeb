#include "kernels/cpu/sparse.hpp"

#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <limits>

namespace troupe::cpu {

namespace {

bool is_feature(std::int32_t column, std::size_t features) noexcept {
  return column >= 0 && static_cast<std::size_t>(column) < features;
}

/// to += factor * from.
template <class T>
void add_scaled(std::size_t n, T factor, const T* from, T* to) {
  TROUPE_INDEPENDENT
  for (std::size_t j = 0; j < n; ++j)
    to[j] += factor * from[j];
}

/// Row `row` of a weight with `units` columns.
template <class T>
const T* row_of(std::span<const weight_rows<T>> weight, std::size_t row, std::size_t units) {
  const auto piece = std::ranges::find_if(weight, [row](auto& x) { return row < x.rows.end; });
  return piece->values + (row - piece->rows.begin) * units;
}

} // namespace

template <class T>
void sparse_matmul(std::size_t rows, std::size_t features, std::size_t units,
                   const sparse_rows<T>& x, std::span<const weight_rows<T>> weight, T* out) {
  for (std::size_t r = 0; r < rows; ++r) {
    T* const row = out + r * units;
    std::fill_n(row, units, T(0));
    for (auto e = x.starts[r]; e < x.starts[r + 1]; ++e)
      if (is_feature(x.columns[e], features))
        add_scaled(units, x.values[e],
                   row_of(weight, static_cast<std::size_t>(x.columns[e]), units), row);
      else
        std::fill_n(row, units, std::numeric_limits<T>::quiet_NaN());
  }
}

template <class T>
void sparse_matmul_gradient(std::size_t rows, std::size_t features, std::size_t units,
                            const sparse_rows<T>& x, const T* g, T* out, bool cleared) {
  if (!cleared)
    std::fill_n(out, features * units, T(0));
  for (std::size_t r = 0; r < rows; ++r)
    for (auto e = x.starts[r]; e < x.starts[r + 1]; ++e)
      if (is_feature(x.columns[e], features))
        add_scaled(units, x.values[e], g + r * units,
                   out + static_cast<std::size_t>(x.columns[e]) * units);
}

#define TROUPE_INSTANTIATE(T)                                                                      \
  template void sparse_matmul(std::size_t, std::size_t, std::size_t, const sparse_rows<T>&,        \
                              std::span<const weight_rows<T>>, T*);                                \
  template void sparse_matmul_gradient(std::size_t, std::size_t, std::size_t,                      \
                                       const sparse_rows<T>&, const T*, T*, bool);
TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
