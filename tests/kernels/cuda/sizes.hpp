#pragma once

#include "tests/kernels/numeric.hpp"

#include <cstddef>
#include <string_view>
#include <vector>

namespace troupe::test {

/// 0, 1, sizes close to a warp and to a block, a prime, and a size that needs more than one round
/// of all blocks of a small launch.
inline const std::vector<std::size_t> element_counts{0,   1,   31,  32,  33,   255,
                                                     256, 257, 997, 513, 20011};

struct matrix_size {
  std::size_t rows = 0;
  std::size_t columns = 0;
};

/// Matrices that have each of `element_counts` as their number of rows and, except for 0, of
/// columns.
inline std::vector<matrix_size> matrix_sizes() {
  std::vector<matrix_size> result;
  for (const auto n : element_counts) {
    result.push_back({n, 5});
    if (n > 0)
      result.push_back({3, n});
  }
  return result;
}

inline std::vector<float> random_floats(std::size_t n, std::string_view name) {
  const auto x = random_values(n, name);
  return {x.begin(), x.end()};
}

inline std::vector<double> as_doubles(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

} // namespace troupe::test
