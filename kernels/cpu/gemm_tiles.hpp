#pragma once

// The matrix product for vectors of one width. gemm.hpp describes the products. Two files include
// this file: gemm.cpp, and gemm_avx512.cpp, which is compiled for larger vectors. Everything here
// has internal linkage, and nothing from the standard library is called. Otherwise, both files
// would define the same inline functions, the linker would keep only one definition, and a
// processor without AVX-512 might run code for AVX-512.
//
// Compiled with -ffp-contract=fast: acc += a * b is a fused multiply-add if the build is for
// machines that have it.

#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/vectorize.hpp"

namespace troupe::cpu {

namespace {

using std::size_t;

constexpr size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}
constexpr size_t most(size_t a, size_t b) {
  return a > b ? a : b;
}
constexpr size_t quotient_up(size_t a, size_t b) {
  return (a + b - 1) / b;
}

/// A tile is the part of the result that is held in registers: `rows` rows of two vectors. With
/// AVX2, it uses 15 of the 16 registers: 12 sums, two vectors of b and one broadcast element of a.
/// With AVX-512, it uses 31 of 32: 28 sums and the same operands.
template <class T, size_t bytes>
struct tiles {
  static constexpr size_t lanes = bytes / sizeof(T);
  static constexpr size_t rows = bytes == 64 ? 14 : 6;
  static constexpr size_t columns = 2 * lanes;

  using vector [[gnu::vector_size(bytes)]] = T;
  using unaligned [[gnu::vector_size(bytes), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;

  static vector load(const T* p) { return *reinterpret_cast<const unaligned*>(p); }
  static void store(T* p, vector x) { *reinterpret_cast<unaligned*>(p) = x; }

  /// Computes one tile: c (R rows of V vectors) = a b, or c += a b if `accumulate` is true.
  /// c_stride and b_stride are the distances of the rows of c and of b. Element (i, p) of a is at
  /// a[i * a_stride + p], or at a[p * R + i] if a is packed.
  template <size_t R, size_t V, bool packed>
  static void multiply(size_t depth, const T* a, size_t a_stride, const T* b, size_t b_stride, T* c,
                       size_t c_stride, bool accumulate) {
    vector sum[R][V];
    // One pointer serves three rows, because the registers have no room for more pointers.
    const T* base[(R + 2) / 3];
    for (size_t i = 0; i < R; i += 3)
      base[i / 3] = a + i * a_stride;
    TROUPE_UNROLL(14)
    for (size_t i = 0; i < R; ++i)
      TROUPE_UNROLL(2)
    for (size_t v = 0; v < V; ++v)
      sum[i][v] = accumulate ? load(c + i * c_stride + v * lanes) : vector{};
    for (size_t p = 0; p < depth; ++p) {
      vector x[V];
      TROUPE_UNROLL(2)
      for (size_t v = 0; v < V; ++v)
        x[v] = load(b + v * lanes);
      b += b_stride;
      TROUPE_UNROLL(14)
      for (size_t i = 0; i < R; ++i) {
        const T y = packed ? a[i] : base[i / 3][i % 3 * a_stride];
        TROUPE_UNROLL(2)
        for (size_t v = 0; v < V; ++v)
          sum[i][v] += y * x[v];
      }
      if constexpr (packed) {
        a += R;
      } else {
        TROUPE_UNROLL(5)
        for (size_t i = 0; i < (R + 2) / 3; ++i)
          ++base[i];
      }
    }
    TROUPE_UNROLL(14)
    for (size_t i = 0; i < R; ++i)
      TROUPE_UNROLL(2)
    for (size_t v = 0; v < V; ++v)
      store(c + i * c_stride + v * lanes, sum[i][v]);
  }

  using function = void (*)(size_t, const T*, size_t, const T*, size_t, T*, size_t, bool);

  template <size_t R>
  static function choose(size_t n, bool wide, bool packed) {
    if constexpr (R == 0)
      return nullptr;
    else if (n != R)
      return choose<R - 1>(n, wide, packed);
    else if (wide)
      return packed ? multiply<R, 2, true> : multiply<R, 2, false>;
    else
      return packed ? multiply<R, 1, true> : multiply<R, 1, false>;
  }

  /// Packs `count` rows of a column-major a into a strip: strip[p * count + i] = a[p * stride + i]
  /// for i < count <= rows, p < depth.
  template <size_t R = rows>
  static void gather(size_t count, size_t depth, const T* a, size_t stride, T* strip) {
    if constexpr (R > 1) {
      if (count < R)
        return gather<R - 1>(count, depth, a, stride, strip);
    }
    for (size_t p = 0; p < depth; ++p, a += stride, strip += R)
      __builtin_memcpy(strip, a, R * sizeof(T));
  }

  /// out[p * out_stride + i] = in[i * in_stride + p] for i < n, p < depth.
  static void transpose(const T* in, size_t in_stride, size_t n, size_t depth, T* out,
                        size_t out_stride);

  /// Writes b (depth, n) as panels of `columns` columns. Panel q contains columns q * columns to
  /// q * columns + columns - 1 of b, row by row. Columns after column n - 1 are zeros. If at most
  /// `lanes` columns are left for the last panel, it has only `lanes` columns.
  static void pack(size_t depth, size_t n, matrix<T> b, T* out) {
    for (size_t j = 0; j < n; j += columns) {
      const auto used = least(columns, n - j);
      const auto width = used <= lanes ? lanes : columns;
      const T* source = b.data + j * b.column_stride;
      if (used < width)
        for (size_t i = 0; i < depth * width; ++i)
          out[i] = 0;
      if (b.column_stride != 1) {
        transpose(source, b.column_stride, used, depth, out, width);
      } else if (used == columns) {
        for (size_t p = 0; p < depth; ++p, source += b.row_stride) {
          store(out + p * columns, load(source));
          store(out + p * columns + lanes, load(source + lanes));
        }
      } else {
        for (size_t p = 0; p < depth; ++p)
          for (size_t i = 0; i < used; ++i)
            out[p * width + i] = source[p * b.row_stride + i];
      }
      out += depth * width;
    }
  }

  /// Number of elements in the packed panels.
  static size_t packed_size(size_t depth, size_t n) {
    return depth * quotient_up(n, lanes) * lanes;
  }

  /// The destination of a product. Element (i, j) is data[i * down + j * across]. One of the two
  /// strides is 1.
  struct target {
    T* data;
    size_t down;
    size_t across;
  };

  /// Computes a tile in a buffer, and then copies it to c. For tiles that cannot be written
  /// directly, because they extend beyond the edge of c, or because c is transposed.
  static void multiply_edge(function f, size_t n_rows, size_t n_columns, size_t depth, const T* a,
                            size_t a_stride, const T* b, size_t b_stride, target c,
                            bool accumulate) {
    alignas(64) T tile[rows * columns];
    if (accumulate) {
      for (size_t i = 0; i < rows * columns; ++i)
        tile[i] = 0;
      for (size_t j = 0; j < n_columns; ++j)
        for (size_t i = 0; i < n_rows; ++i)
          tile[i * columns + j] = c.data[i * c.down + j * c.across];
    }
    f(depth, a, a_stride, b, b_stride, tile, columns, accumulate);
    if (c.across == 1) {
      for (size_t i = 0; i < n_rows; ++i)
        for (size_t j = 0; j < n_columns; ++j)
          c.data[i * c.down + j] = tile[i * columns + j];
    } else {
      for (size_t j = 0; j < n_columns; ++j)
        for (size_t i = 0; i < n_rows; ++i)
          c.data[j * c.across + i * c.down] = tile[i * columns + j];
    }
  }

  /// Computes a strip of the result, which is a row of tiles: c (n_rows, n) = a b, or c += a b, for
  /// n_rows <= rows. If b_stride is 0, b is in packed panels. Otherwise, b is row-major, and n must
  /// be a multiple of `lanes`.
  static void multiply_strip(size_t n_rows, size_t n, size_t depth, const T* a, size_t a_stride,
                             bool packed, const T* b, size_t b_stride, target c, bool accumulate) {
    const function wide = choose<rows>(n_rows, true, packed);
    for (size_t j = 0; j < n; j += columns) {
      const auto used = least(columns, n - j);
      const auto f = used > lanes ? wide : choose<rows>(n_rows, false, packed);
      const auto width = used > lanes ? columns : lanes;
      const auto stride = b_stride != 0 ? b_stride : width;
      const target corner{c.data + j * c.across, c.down, c.across};
      if (used == width && c.across == 1)
        f(depth, a, a_stride, b, stride, corner.data, c.down, accumulate);
      else
        multiply_edge(f, n_rows, used, depth, a, a_stride, b, stride, corner, accumulate);
      b += b_stride != 0 ? width : depth * width;
    }
  }

  /// Divides m rows into strips with about the same number of rows, at most `rows`.
  struct strips {
    explicit strips(size_t m) : m(m), count(quotient_up(m, rows)) {}

    size_t first(size_t s) const { return m * s / count; }
    size_t size(size_t s) const { return first(s + 1) - first(s); }

    size_t m;
    size_t count;
  };

  /// c (m, n) = a (m, depth) times packed panels, or c += this product.
  ///
  /// A column-major a is first packed into strips in `packed_rows`, which has block_elements
  /// elements. Many strips are packed at the same time, from `lines` lines of a. If they were
  /// packed one after the other, each read would miss the cache when the distance of the lines is a
  /// power of two.
  static void multiply_block(size_t m, size_t n, size_t depth, matrix<T> a, const T* panels,
                             target c, bool accumulate, T* packed_rows) {
    constexpr size_t lines = 8;
    const strips all(m);
    const bool packed = a.column_stride != 1;
    const auto at_once = packed ? most(block_elements / (rows * depth), 1) : all.count;
    for (size_t begin = 0; begin < all.count; begin += at_once) {
      const auto end = least(begin + at_once, all.count);
      const auto origin = all.first(begin);
      for (size_t p = 0; packed && p < depth; p += lines)
        for (size_t s = begin; s < end; ++s)
          gather(all.size(s), least(lines, depth - p), a.data + p * a.column_stride + all.first(s),
                 a.column_stride, packed_rows + (all.first(s) - origin) * depth + p * all.size(s));
      for (size_t s = begin; s < end; ++s) {
        const auto first = all.first(s);
        const T* strip =
          packed ? packed_rows + (first - origin) * depth : a.data + first * a.row_stride;
        multiply_strip(all.size(s), n, depth, strip, a.row_stride, packed, panels, 0,
                       {c.data + first * c.down, c.down, c.across}, accumulate);
      }
    }
  }

  /// Largest depth of a block, which is the number of terms of each sum that are added at once.
  /// With this depth, a strip of a stays in the first-level cache, and a panel of b in the
  /// second-level cache.
  static constexpr size_t max_depth = 2048 / sizeof(T);
  /// Number of elements in half of the scratch space: half a MiB. One half is for packed panels of
  /// b, the other half for packed strips of a.
  static constexpr size_t block_elements = (size_t{1} << 19) / sizeof(T);

  static void multiply_packing_b(size_t m, size_t n, size_t k, matrix<T> a, matrix<T> b, target c,
                                 bool accumulate, T* scratch) {
    const auto depth_step = quotient_up(k, quotient_up(k, max_depth));
    const auto column_step = most(block_elements / depth_step / columns, 1) * columns;
    T* const strip = scratch + block_elements;
    for (size_t j = 0; j < n; j += column_step) {
      const auto width = least(column_step, n - j);
      for (size_t p = 0; p < k; p += depth_step) {
        const auto depth = least(depth_step, k - p);
        pack(depth, width,
             {b.data + p * b.row_stride + j * b.column_stride, b.row_stride, b.column_stride},
             scratch);
        multiply_block(m, width, depth,
                       {a.data + p * a.column_stride, a.row_stride, a.column_stride}, scratch,
                       {c.data + j * c.across, c.down, c.across}, accumulate || p > 0, strip);
      }
    }
  }

  /// The product if a is only one strip and b is row-major. b is not packed, except for the columns
  /// after its last whole vector.
  static void multiply_few_rows(size_t m, size_t n, size_t k, matrix<T> a, matrix<T> b, target c,
                                bool accumulate, T* scratch) {
    const auto whole = n / lanes * lanes;
    T* const strip = scratch + block_elements;
    for (size_t p = 0; p < k; p += max_depth) {
      const auto depth = least(max_depth, k - p);
      const T* source = a.data + p * a.column_stride;
      const bool packed = a.column_stride != 1;
      if (packed)
        gather(m, depth, source, a.column_stride, strip);
      const T* left = packed ? strip : source;
      const T* right = b.data + p * b.row_stride;
      multiply_strip(m, whole, depth, left, a.row_stride, packed, right, b.row_stride, c,
                     accumulate || p > 0);
      if (whole == n)
        continue;
      pack(depth, n - whole, {right + whole, b.row_stride, 1}, scratch);
      multiply_strip(m, n - whole, depth, left, a.row_stride, packed, scratch, 0,
                     {c.data + whole * c.across, c.down, c.across}, accumulate || p > 0);
    }
  }

  /// The approximate cost of a product. One unit is one multiply-add with a packed panel. The cost
  /// includes sums in partly filled vectors, packing with and without transposing, and writing
  /// transposed results.
  static size_t cost(size_t m, size_t n, size_t k, bool copies_a, bool copies_b, bool transposed) {
    const auto padded = quotient_up(n, lanes) * lanes;
    const auto unpacked = copies_b && m <= rows;
    return m * padded * k + (unpacked ? 0 : k * n * (copies_b ? 8 : 16))
      + (copies_a ? k * m * 4 : 0) + (transposed ? m * n * 32 : 0);
  }

  static void product(size_t m, size_t n, size_t k, matrix<T> a, matrix<T> b, T* c,
                      size_t row_stride, bool accumulate, T* scratch) {
    const bool rows_of_a = a.column_stride == 1;
    const bool rows_of_b = b.column_stride == 1;
    target to{c, row_stride, 1};
    // Computes c^T = b^T a^T instead, if this is cheaper.
    if (cost(n, m, k, rows_of_b, !rows_of_a, true) < cost(m, n, k, !rows_of_a, rows_of_b, false)) {
      const auto left = a;
      a = b.transposed();
      b = left.transposed();
      to = {c, 1, row_stride};
      const auto rows_of_c = m;
      m = n;
      n = rows_of_c;
    }
    if (m <= rows && b.column_stride == 1)
      multiply_few_rows(m, n, k, a, b, to, accumulate, scratch);
    else
      multiply_packing_b(m, n, k, a, b, to, accumulate, scratch);
  }

  /// c = a b, or c += a b, where all of b is packed and a is row-major. The outer loop goes through
  /// the panels of b, so each panel is read from memory once for all strips of a. This is fast if a
  /// has few strips, as in the steps of a recurrence.
  static void product_packed(size_t m, size_t n, size_t k, matrix<T> a, const T* panels, T* c,
                             size_t row_stride, bool accumulate) {
    const strips all(m);
    const auto depth_step = quotient_up(k, most(quotient_up(k, max_depth), 1));
    for (size_t j = 0; j < n; j += columns) {
      const auto used = least(columns, n - j);
      const auto width = used > lanes ? columns : lanes;
      for (size_t p = 0; p == 0 || p < k; p += depth_step)
        for (size_t s = 0; s < all.count; ++s) {
          const auto first = all.first(s);
          multiply_strip(all.size(s), used, least(depth_step, k - p),
                         a.data + first * a.row_stride + p, a.row_stride, false, panels + p * width,
                         0, {c + first * row_stride + j, row_stride, 1}, accumulate || p > 0);
        }
      panels += k * width;
    }
  }

  // -- convolutions: matrices of patches that are never stored ------------------------------------

  /// Like `multiply` with an a that is not packed. But row p of b begins at b + offsets[p].
  template <size_t R, size_t V>
  static void multiply_at(size_t depth, const T* a, size_t a_stride, const T* b,
                          const size_t* offsets, T* c, size_t c_stride) {
    vector sum[R][V] = {};
    const T* base[(R + 2) / 3];
    for (size_t i = 0; i < R; i += 3)
      base[i / 3] = a + i * a_stride;
    for (size_t p = 0; p < depth; ++p) {
      vector x[V];
      TROUPE_UNROLL(2)
      for (size_t v = 0; v < V; ++v)
        x[v] = load(b + offsets[p] + v * lanes);
      TROUPE_UNROLL(14)
      for (size_t i = 0; i < R; ++i) {
        const T y = base[i / 3][i % 3 * a_stride];
        TROUPE_UNROLL(2)
        for (size_t v = 0; v < V; ++v)
          sum[i][v] += y * x[v];
      }
      TROUPE_UNROLL(5)
      for (size_t i = 0; i < (R + 2) / 3; ++i)
        ++base[i];
    }
    TROUPE_UNROLL(14)
    for (size_t i = 0; i < R; ++i)
      TROUPE_UNROLL(2)
    for (size_t v = 0; v < V; ++v)
      store(c + i * c_stride + v * lanes, sum[i][v]);
  }

  using function_at = void (*)(size_t, const T*, size_t, const T*, const size_t*, T*, size_t);

  template <size_t R = rows>
  static function_at choose_at(size_t n) {
    if constexpr (R == 1)
      return multiply_at<1, 2>;
    else
      return n == R ? multiply_at<R, 2> : choose_at<R - 1>(n);
  }

  static void product_at(size_t m, size_t n, size_t depth, const T* a, const T* b,
                         const size_t* offsets, T* c, size_t row_stride) {
    const strips all(m);
    for (size_t j = 0; j < n; j += columns)
      for (size_t s = 0; s < all.count; ++s) {
        const auto first = all.first(s);
        choose_at(all.size(s))(depth, a + first * depth, depth, b + j, offsets,
                               c + first * row_stride + j, row_stride);
      }
  }

  /// c (R rows of V vectors) += a b. Row i of a begins at a + offsets[i]. It consists of `height`
  /// lines of `width` elements, which begin `line` elements apart. b is a packed panel.
  template <size_t R, size_t V>
  static void multiply_lines(size_t height, size_t width, const T* a, const size_t* offsets,
                             size_t line, const T* b, T* c, size_t c_stride) {
    vector sum[R][V];
    TROUPE_UNROLL(14)
    for (size_t i = 0; i < R; ++i)
      TROUPE_UNROLL(2)
    for (size_t v = 0; v < V; ++v)
      sum[i][v] = load(c + i * c_stride + v * lanes);
    const auto step = [&](const T* from) __attribute__((always_inline)) {
      vector x[V];
      TROUPE_UNROLL(2)
      for (size_t v = 0; v < V; ++v)
        x[v] = load(b + v * lanes);
      TROUPE_UNROLL(14)
      for (size_t i = 0; i < R; ++i) {
        const T y = from[offsets[i]];
        TROUPE_UNROLL(2)
        for (size_t v = 0; v < V; ++v)
          sum[i][v] += y * x[v];
      }
      b += V * lanes;
    };
    for (size_t r = 0; r < height; ++r)
      for (size_t q = 0; q < width; ++q)
        step(a + r * line + q);
    TROUPE_UNROLL(14)
    for (size_t i = 0; i < R; ++i)
      TROUPE_UNROLL(2)
    for (size_t v = 0; v < V; ++v)
      store(c + i * c_stride + v * lanes, sum[i][v]);
  }

  using function_lines = void (*)(size_t, size_t, const T*, const size_t*, size_t, const T*, T*,
                                  size_t);

  template <size_t R = rows>
  static function_lines choose_lines(size_t n, bool wide) {
    if constexpr (R > 1) {
      if (n != R)
        return choose_lines<R - 1>(n, wide);
    }
    return wide ? multiply_lines<R, 2> : multiply_lines<R, 1>;
  }

  static void product_lines(size_t m, size_t n, size_t height, size_t width, const T* a,
                            const size_t* offsets, size_t line, const T* panels, T* c,
                            size_t row_stride) {
    const strips all(m);
    for (size_t j = 0; j < n; j += columns) {
      const bool wide = n - j > lanes;
      for (size_t s = 0; s < all.count; ++s) {
        const auto first = all.first(s);
        choose_lines(all.size(s), wide)(height, width, a, offsets + first, line, panels,
                                        c + first * row_stride + j, row_stride);
      }
      panels += height * width * (wide ? columns : lanes);
    }
  }

  static constexpr size_t scratch_elements = 2 * block_elements;
};

// Transposes a square of 8 by 8 floats: first within pairs of rows, then in groups of four rows,
// then between the first and the last four rows.
using float8 [[gnu::vector_size(32)]] = float;
using float8_unaligned [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

inline void transpose_square(const float* in, size_t in_stride, float* out, size_t out_stride) {
  float8 x[8];
  float8 y[8];
  TROUPE_UNROLL(8)
  for (size_t i = 0; i < 8; ++i)
    x[i] = *reinterpret_cast<const float8_unaligned*>(in + i * in_stride);
  TROUPE_UNROLL(4)
  for (size_t i = 0; i < 8; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  TROUPE_UNROLL(4)
  for (size_t q = 0; q < 4; ++q) {
    const auto i = q / 2 * 4;
    const auto j = q % 2;
    x[i + 2 * j] = __builtin_shufflevector(y[i + j], y[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    x[i + 2 * j + 1] = __builtin_shufflevector(y[i + j], y[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  const auto put = [&](size_t i, float8 v) {
    *reinterpret_cast<float8_unaligned*>(out + i * out_stride) = v;
  };
  TROUPE_UNROLL(4)
  for (size_t i = 0; i < 4; ++i) {
    put(i, __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    put(i + 4, __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
  }
}

inline void transpose_square(const double* in, size_t in_stride, double* out, size_t out_stride) {
  for (size_t j = 0; j < 8; ++j)
    for (size_t i = 0; i < 8; ++i)
      out[j * out_stride + i] = in[i * in_stride + j];
}

template <class T, size_t bytes>
void tiles<T, bytes>::transpose(const T* in, size_t in_stride, size_t n, size_t depth, T* out,
                                size_t out_stride) {
  constexpr size_t side = 8;
  const auto whole = n / side * side;
  const auto whole_depth = depth / side * side;
  for (size_t p = 0; p < whole_depth; p += side)
    for (size_t i = 0; i < whole; i += side)
      transpose_square(in + i * in_stride + p, in_stride, out + p * out_stride + i, out_stride);
  for (size_t i = 0; i < n; ++i)
    for (size_t p = i < whole ? whole_depth : 0; p < depth; ++p)
      out[p * out_stride + i] = in[i * in_stride + p];
}

} // namespace

} // namespace troupe::cpu
