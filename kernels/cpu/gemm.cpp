// Compiled with -ffp-contract=fast: acc += a * b is a fused multiply-add where the machine has one.

#include "kernels/cpu/gemm.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::cpu {

namespace {

/// Tile: 6 rows by two vectors of 32 bytes; 12 accumulators, 2 vectors of b and a broadcast fill
/// the 16 AVX registers.
constexpr std::size_t tile_rows = 6;
constexpr std::size_t vector_bytes = 32;
template <class T>
constexpr std::size_t lanes = vector_bytes / sizeof(T);
template <class T>
constexpr std::size_t tile_columns = 2 * lanes<T>;

/// Six rows of a (24 KiB of floats) stay in the first-level cache; the panels of a block (512 KiB)
/// come from the second level, 64 bytes for 12 multiply-adds of vectors. Not cutting the depth of
/// 784 brought 5 % over cutting it at 512.
constexpr std::size_t max_depth = 1024;
constexpr std::size_t block_elements = std::size_t{128} * 1024;

template <class T>
struct vector_of;
template <>
struct vector_of<float> {
  using type [[gnu::vector_size(vector_bytes)]] = float;
  using unaligned [[gnu::vector_size(vector_bytes), gnu::aligned(4), gnu::may_alias]] = float;
};
template <>
struct vector_of<double> {
  using type [[gnu::vector_size(vector_bytes)]] = double;
  using unaligned [[gnu::vector_size(vector_bytes), gnu::aligned(8), gnu::may_alias]] = double;
};

template <class T>
[[gnu::always_inline]] inline auto load(const T* p) {
  return static_cast<typename vector_of<T>::type>(
    *reinterpret_cast<const typename vector_of<T>::unaligned*>(p));
}

template <class T>
[[gnu::always_inline]] inline void store(T* p, typename vector_of<T>::type x) {
  *reinterpret_cast<typename vector_of<T>::unaligned*>(p) = x;
}

/// tile (rows, tile_columns), rows `tile_stride` apart, = or += a (rows, depth) times the packed
/// panel b. a: element (i, p) is a[i * row_stride + p * step].
template <std::size_t rows, class T>
void multiply_tile(std::size_t depth, const T* a, std::size_t row_stride, std::size_t step,
                   const T* b, T* tile, std::size_t tile_stride, bool accumulate) {
  using vector = typename vector_of<T>::type;
  constexpr auto width = lanes<T>;
  vector sum[rows][2];
  const T* row[rows];
  for (std::size_t i = 0; i < rows; ++i) {
    row[i] = a + i * row_stride;
    sum[i][0] = accumulate ? load(tile + i * tile_stride) : vector{};
    sum[i][1] = accumulate ? load(tile + i * tile_stride + width) : vector{};
  }
  for (std::size_t p = 0; p < depth; ++p) {
    const vector b0 = load(b);
    const vector b1 = load(b + width);
    b += 2 * width;
#pragma GCC unroll 6
    for (std::size_t i = 0; i < rows; ++i) {
      const T x = row[i][p * step];
      sum[i][0] += x * b0;
      sum[i][1] += x * b1;
    }
  }
  for (std::size_t i = 0; i < rows; ++i) {
    store(tile + i * tile_stride, sum[i][0]);
    store(tile + i * tile_stride + width, sum[i][1]);
  }
}

template <class T>
void multiply_tile(std::size_t rows, std::size_t depth, const T* a, std::size_t row_stride,
                   std::size_t step, const T* b, T* tile, std::size_t tile_stride,
                   bool accumulate) {
  switch (rows) {
  case 1:
    return multiply_tile<1>(depth, a, row_stride, step, b, tile, tile_stride, accumulate);
  case 2:
    return multiply_tile<2>(depth, a, row_stride, step, b, tile, tile_stride, accumulate);
  case 3:
    return multiply_tile<3>(depth, a, row_stride, step, b, tile, tile_stride, accumulate);
  case 4:
    return multiply_tile<4>(depth, a, row_stride, step, b, tile, tile_stride, accumulate);
  case 5:
    return multiply_tile<5>(depth, a, row_stride, step, b, tile, tile_stride, accumulate);
  default:
    return multiply_tile<6>(depth, a, row_stride, step, b, tile, tile_stride, accumulate);
  }
}

/// out[j * out_stride + i] = in[i * in_stride + j] for a square of one vector by one vector.
[[gnu::always_inline]] inline void transpose_square(const float* in, std::size_t in_stride,
                                                    float* out, std::size_t out_stride) {
  using vector = vector_of<float>::type;
  vector x[8];
  vector y[8];
  for (std::size_t i = 0; i < 8; ++i)
    x[i] = load(in + i * in_stride);
  // Pairs of elements, then quadruples, then halves.
  for (std::size_t i = 0; i < 8; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (std::size_t i = 0; i < 8; i += 4) {
    for (std::size_t j = 0; j < 2; ++j) {
      x[i + 2 * j] = __builtin_shufflevector(y[i + j], y[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      x[i + 2 * j + 1] =
        __builtin_shufflevector(y[i + j], y[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    store(out + i * out_stride, __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    store(out + (i + 4) * out_stride,
          __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
  }
}

inline void transpose_square(const double* in, std::size_t in_stride, double* out,
                             std::size_t out_stride) {
  for (std::size_t j = 0; j < 4; ++j)
    for (std::size_t i = 0; i < 4; ++i)
      out[j * out_stride + i] = in[i * in_stride + j];
}

/// out[p * out_stride + i] = in[i * in_stride + p] for i < columns, p < depth.
template <class T>
void transpose(const T* in, std::size_t in_stride, std::size_t columns, std::size_t depth, T* out,
               std::size_t out_stride) {
  constexpr auto side = lanes<T>;
  const auto whole_columns = columns / side * side;
  const auto whole_depth = depth / side * side;
  for (std::size_t p = 0; p < whole_depth; p += side)
    for (std::size_t i = 0; i < whole_columns; i += side)
      transpose_square(in + i * in_stride + p, in_stride, out + p * out_stride + i, out_stride);
  for (std::size_t i = 0; i < columns; ++i)
    for (std::size_t p = i < whole_columns ? whole_depth : 0; p < depth; ++p)
      out[p * out_stride + i] = in[i * in_stride + p];
}

/// Panels of b (depth, columns): panel q holds, for each p, the elements (p, q * width ...), zeros
/// beyond the last column.
template <class T>
void pack_panels(matrix<T> b, std::size_t depth, std::size_t columns, T* out) {
  constexpr auto width = tile_columns<T>;
  for (std::size_t j = 0; j < columns; j += width) {
    const auto used = std::min(width, columns - j);
    const T* source = b.data + j * b.column_stride;
    if (used < width)
      std::memset(out, 0, depth * width * sizeof(T));
    if (b.row_stride == 1 && b.column_stride != 1) {
      transpose(source, b.column_stride, used, depth, out, width);
    } else if (used == width) {
      for (std::size_t p = 0; p < depth; ++p)
        std::memcpy(out + p * width, source + p * b.row_stride, width * sizeof(T));
    } else {
      for (std::size_t p = 0; p < depth; ++p)
        std::copy_n(source + p * b.row_stride, used, out + p * width);
    }
    out += depth * width;
  }
}

/// Where a product goes: element (i, j) of it is data[i * stride + j], or, transposed, data[j *
/// stride + i].
template <class T>
struct target {
  T* data;
  std::size_t stride;
  bool transposed;
};

/// A tile that cannot be written where it belongs (cut off at the edge, or transposed) goes by a
/// buffer.
template <class T>
void multiply_edge_tile(std::size_t rows, std::size_t columns, std::size_t depth, const T* a,
                        std::size_t row_stride, std::size_t step, const T* b, target<T> c,
                        bool accumulate) {
  constexpr auto width = tile_columns<T>;
  // Two rows more than the tile has, for transposing by squares.
  alignas(64) T tile[(tile_rows + 2) * width];
  const auto down = c.transposed ? std::size_t{1} : c.stride;
  const auto across = c.transposed ? c.stride : std::size_t{1};
  std::memset(tile, 0, sizeof tile);
  if (accumulate) {
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t i = 0; i < rows; ++i)
        tile[i * width + j] = c.data[i * down + j * across];
  }
  multiply_tile(rows, depth, a, row_stride, step, b, tile, width, accumulate);
  if (c.transposed && rows == tile_rows && lanes<T> == tile_rows + 2) {
    constexpr auto side = tile_rows + 2;
    alignas(64) T turned[width * side];
    for (std::size_t j = 0; j < width; j += lanes<T>)
      transpose_square(tile + j, width, turned + j * side, side);
    for (std::size_t j = 0; j < columns; ++j)
      std::memcpy(c.data + j * c.stride, turned + j * side, tile_rows * sizeof(T));
    return;
  }
  for (std::size_t j = 0; j < columns; ++j)
    for (std::size_t i = 0; i < rows; ++i)
      c.data[i * down + j * across] = tile[i * width + j];
}

/// c += or = a (m, depth) times packed panels of b.
template <class T>
void multiply_block(std::size_t m, std::size_t columns, std::size_t depth, matrix<T> a,
                    const T* panels, T* packed_rows, target<T> c, bool accumulate) {
  constexpr auto width = tile_columns<T>;
  for (std::size_t i = 0; i < m; i += tile_rows) {
    const auto rows = std::min(tile_rows, m - i);
    const T* row = a.data + i * a.row_stride;
    auto row_stride = a.row_stride;
    std::size_t step = 1;
    if (a.column_stride
        != 1) { // six rows of a column-major matrix: gather them once for all panels
      for (std::size_t p = 0; p < depth; ++p)
        for (std::size_t r = 0; r < rows; ++r)
          packed_rows[p * tile_rows + r] = row[p * a.column_stride + r * a.row_stride];
      row = packed_rows;
      row_stride = 1;
      step = tile_rows;
    }
    for (std::size_t j = 0; j < columns; j += width) {
      const auto used = std::min(width, columns - j);
      const T* panel = panels + j * depth;
      if (used == width && !c.transposed) {
        multiply_tile(rows, depth, row, row_stride, step, panel, c.data + i * c.stride + j,
                      c.stride, accumulate);
      } else {
        const target<T> corner{c.data + (c.transposed ? j * c.stride + i : i * c.stride + j),
                               c.stride, c.transposed};
        multiply_edge_tile(rows, used, depth, row, row_stride, step, panel, corner, accumulate);
      }
    }
  }
}

/// The product with b packed.
template <class T>
void multiply_packing_b(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b,
                        target<T> c, T* scratch) {
  constexpr auto width = tile_columns<T>;
  const auto blocks = (k + max_depth - 1) / max_depth;
  const auto depth_step = (k + blocks - 1) / blocks;
  const auto column_step = std::max(block_elements / depth_step / width, std::size_t{1}) * width;
  T* const packed_rows = scratch + block_elements;
  for (std::size_t j = 0; j < n; j += column_step) {
    const auto columns = std::min(column_step, n - j);
    for (std::size_t p = 0; p < k; p += depth_step) {
      const auto depth = std::min(depth_step, k - p);
      const matrix<T> part{b.data + p * b.row_stride + j * b.column_stride, b.row_stride,
                           b.column_stride};
      pack_panels(part, depth, columns, scratch);
      const matrix<T> rows{a.data + p * a.column_stride, a.row_stride, a.column_stride};
      const target<T> corner{c.data + (c.transposed ? j * c.stride : j), c.stride, c.transposed};
      multiply_block(m, columns, depth, rows, scratch, packed_rows, corner, p > 0);
    }
  }
}

} // namespace

template <class T>
std::size_t gemm_scratch_elements() noexcept {
  return block_elements + tile_rows * max_depth;
}

template <class T>
void gemm(std::size_t m, std::size_t n, std::size_t k, matrix<T> a, matrix<T> b, T* c,
          std::size_t row_stride, T* scratch) {
  if (k == 0) {
    for (std::size_t i = 0; i < m; ++i)
      std::fill_n(c + i * row_stride, n, T(0));
    return;
  }
  // Packing costs about a tenth of an element's time where rows can be copied, as against
  // transposing; so does a result that is written transposed.
  auto cost = [](bool copies) { return copies ? std::size_t{1} : std::size_t{8}; };
  const auto pack_b = k * n * cost(b.column_stride == 1);
  const auto pack_a = k * m * cost(a.row_stride == 1) + 8 * m * n;
  if (pack_b <= pack_a)
    multiply_packing_b(m, n, k, a, b, target<T>{c, row_stride, false}, scratch);
  else
    multiply_packing_b(n, m, k, b.transposed(), a.transposed(), target<T>{c, row_stride, true},
                       scratch);
}

template std::size_t gemm_scratch_elements<float>() noexcept;
template std::size_t gemm_scratch_elements<double>() noexcept;
template void gemm(std::size_t, std::size_t, std::size_t, matrix<float>, matrix<float>, float*,
                   std::size_t, float*);
template void gemm(std::size_t, std::size_t, std::size_t, matrix<double>, matrix<double>, double*,
                   std::size_t, double*);

} // namespace troupe::cpu
