#include "kernels/cpu/attention.hpp"

#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/softmax_loops.hpp"
#include "kernels/cpu/sums.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <type_traits>

namespace troupe::cpu {

namespace {

/// Rows and columns of a block of shares (attention probabilities). Two blocks fit into the
/// second-level cache. If attention is causal, half of the 32 x 32 shares at the diagonal are
/// masked. These masked shares are computed nevertheless. This is little work, because a block has
/// only 32 rows.
constexpr std::size_t block_rows = 32;
constexpr std::size_t block_columns = 256;
/// Number of keys in a chunk. A matrix product that sums over keys is computed chunk by chunk, so a
/// block can have any number of chunks. Causal attention needs this.
constexpr std::size_t key_chunk = gemm_columns;
static_assert(block_columns % key_chunk == 0);

std::size_t whole_chunks(std::size_t n) {
  return (n + key_chunk - 1) / key_chunk * key_chunk;
}

/// One head of a tensor as a matrix: its first row, and the distance of its rows.
template <class T>
struct head_matrix {
  T* data = nullptr;
  std::size_t stride = 0;

  head_matrix(T* from, const head_rows& where, std::size_t sample, std::size_t head)
    : data(from == nullptr ? nullptr
                           : from + where.begin + sample * where.sample + head * where.head),
      stride(where.row) {}

  T* row(std::size_t r) const { return data + r * stride; }
  matrix<std::remove_const_t<T>> from(std::size_t r) const { return {row(r), stride, 1}; }
};

/// A block of shares. It consists of the queries [row, row + rows) and of `columns` keys from
/// `column` on. Each of these keys is visible to at least one of the queries.
struct share_block {
  std::size_t row;
  std::size_t rows;
  std::size_t column;
  std::size_t columns;
  /// Number of columns that products compute: `columns`, rounded up to whole chunks, but at most
  /// the number of keys from `column` on.
  std::size_t padded;

  /// The number of columns (keys) of the block that are visible to row r (a query) of the block.
  /// With causal attention, the columns after them are masked.
  std::size_t visible(std::size_t r, bool causal) const {
    if (!causal)
      return columns;
    const auto end = row + r + 1;
    return end > column ? std::min(end - column, columns) : 0;
  }
};

/// Calls f(share_block) for each block of a group of queries, in the order of the keys. The group
/// begins at query `row` and has at most block_rows queries.
template <class F>
void each_block(const attention_layout& size, std::size_t row, F f) {
  const auto rows = std::min(block_rows, size.queries - row);
  const auto end = size.causal ? row + rows : size.keys;
  for (std::size_t column = 0; column < end; column += block_columns) {
    const auto columns = std::min(block_columns, end - column);
    f(share_block{row, rows, column, columns, std::min(whole_chunks(columns), size.keys - column)});
  }
}

/// A matrix (keys, width) whose chunks of keys are packed separately. For products that sum over
/// the keys.
template <class T>
struct packed_chunks {
  T* panels;
  std::size_t width;

  static std::size_t elements(const attention_layout& size) {
    return whole_chunks(size.keys) / key_chunk * packed_elements<T>(key_chunk, size.width);
  }
  T* at(std::size_t key) const {
    return panels + key / key_chunk * packed_elements<T>(key_chunk, width);
  }
  void fill(const head_matrix<const T>& from, std::size_t keys) const {
    for (std::size_t key = 0; key < keys; key += key_chunk)
      pack<T>(std::min(key_chunk, keys - key), width, from.from(key), at(key));
  }
  /// Computes c += shares times the matrix, for the rows and keys of a block. The first chunk of
  /// keys overwrites c.
  void multiply(const share_block& b, const T* shares, const head_matrix<T>& c) const {
    for (std::size_t key = 0; key < b.padded; key += key_chunk)
      gemm_packed<T>(b.rows, width, std::min(key_chunk, b.padded - key),
                     {shares + key, block_columns, 1}, at(b.column + key), c.row(b.row), c.stride,
                     b.column + key > 0);
  }
};

/// A matrix (keys, width), packed for products with its transpose. These products sum over the
/// width.
template <class T>
struct packed_rows {
  T* panels;
  std::size_t width;

  static std::size_t elements(const attention_layout& size) {
    return packed_elements<T>(size.width, size.keys);
  }
  void fill(const head_matrix<const T>& from, std::size_t keys) const {
    pack<T>(width, keys, from.from(0).transposed(), panels);
  }
  /// Computes out (rows, block_columns) = x times the transposed matrix, for the rows and keys of a
  /// block.
  void multiply(const share_block& b, const head_matrix<const T>& x, T* out) const {
    gemm_packed<T>(b.rows, b.padded, width, x.from(b.row), panels + b.column * width, out,
                   block_columns);
  }
};

template <class T>
void scale_row(std::size_t n, T factor, T* x) {
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    x[i] *= factor;
}

/// Divides the scratch space of a thread into arrays, one after the other. In attention_gradient,
/// the first array is the scratch space of gemm().
template <class T>
struct scratch_parts {
  T* next;

  explicit scratch_parts(T* scratch) : next(scratch) {}
  T* take(std::size_t n) {
    T* const result = next;
    next += (n + 15) / 16 * 16;
    return result;
  }
};

constexpr std::size_t block_elements = block_rows * block_columns;

/// For each row of a block: the largest scaled score so far, and the sum of the exponentials so
/// far.
template <class T>
struct row_statistics {
  T largest[block_rows];
  T sum[block_rows];
};

/// Replaces the scores of a block by exponentials. They become shares when they are divided by
/// their sum over all keys; finish_rows() divides the rows of y instead.
template <class T>
void to_shares(const attention_layout& size, const share_block& b, T* scores,
               row_statistics<T>& rows, const head_matrix<T>& y) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const auto factor = static_cast<T>(size.factor);
  for (std::size_t r = 0; r < b.rows; ++r) {
    T* const x = scores + r * block_columns;
    const auto n = b.visible(r, size.causal);
    std::fill(x + n, x + b.padded, T(0));
    if (n == 0)
      continue;
    scale_row(n, factor, x);
    const T before = b.column > 0 ? rows.largest[r] : -infinity;
    const T found = maximum(n, x);
    const T largest = before > found ? before : found;
    // If all scores so far are -infinity, the shift is 0, and the exponentials are 0. A shift of
    // -infinity would give NaN.
    const T shift = largest == -infinity ? T(0) : largest;
    T sum = exponentials(n, x, shift, x);
    if (b.column > 0) {
      const T shrink = cpu::exp(before - shift);
      sum += shrink * rows.sum[r];
      if (y.data != nullptr)
        scale_row(size.width, shrink, y.row(b.row + r));
    }
    rows.largest[r] = largest;
    rows.sum[r] = sum;
  }
}

/// Computes the final results of rows after the last block of keys: divides the rows of y by the
/// sums of their exponentials, and writes the statistics.
template <class T>
void finish_rows(const attention_layout& size, std::size_t row, const row_statistics<T>& rows,
                 const head_matrix<T>& y, T* statistics) {
  const auto count = std::min(block_rows, size.queries - row);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t j = 0; y.data != nullptr && j < size.width; ++j)
      y.row(row + r)[j] /= rows.sum[r];
    if (statistics != nullptr)
      statistics[row + r] = rows.largest[r] + cpu::log(rows.sum[r]);
  }
}

/// Turns the scores of a block into shares, and computes the gradients of the scores.
///
/// - shares: before the call, the scores; after it, exp(factor * score - statistics[r]) in row r.
/// - slopes: before the call, the products of dy and v; after it, the gradients of the products of
///   queries and keys, share * (slope - products[r]) * factor.
/// - products[r]: the sum of dy * y over row r.
template <class T>
void to_gradients(const attention_layout& size, const share_block& b, const T* statistics,
                  const T* products, T* shares, T* slopes) {
  const auto factor = static_cast<T>(size.factor);
  for (std::size_t r = 0; r < b.rows; ++r) {
    T* const p = shares + r * block_columns;
    T* const d = slopes + r * block_columns;
    const auto n = b.visible(r, size.causal);
    const T shift = statistics[b.row + r];
    const T product = products[r];
    TROUPE_INDEPENDENT
    for (std::size_t j = 0; j < n; ++j) {
      p[j] = cpu::exp(p[j] * factor - shift);
      d[j] = p[j] * (d[j] - product) * factor;
    }
    std::fill(p + n, p + b.padded, T(0));
    std::fill(d + n, d + b.padded, T(0));
  }
}

template <class T>
double product_of_rows(std::size_t n, const T* x, const T* y) {
  return sum_terms(
    n, [&](std::size_t j) { return load_doubles(x + j) * load_doubles(y + j); },
    [&](std::size_t j) { return static_cast<double>(x[j]) * static_cast<double>(y[j]); });
}

template <class T>
void clear_rows(const head_matrix<T>& x, std::size_t rows, std::size_t width) {
  for (std::size_t r = 0; x.data != nullptr && r < rows; ++r)
    std::fill_n(x.row(r), width, T(0));
}

/// Computes out += the transposed block `values` (rows, columns) times x. The rows of x are the
/// queries of the block, and the rows of out are its keys.
template <class T>
void add_transposed(const attention_layout& size, const share_block& b, const T* values,
                    const head_matrix<const T>& x, const head_matrix<T>& out, T* scratch) {
  const matrix<T> left{values, block_columns, 1};
  gemm<T>(b.columns, size.width, b.rows, left.transposed(), x.from(b.row), out.row(b.column),
          out.stride, scratch, true);
}

/// The operands and results of one head.
template <class T>
struct gradient_head {
  head_matrix<const T> q, k, v, dy, y;
  const T* statistics;
  head_matrix<T> dq, dk, dv;
};

template <class T>
struct gradient_space {
  T* gemm;
  packed_rows<T> keys;
  packed_rows<T> values;
  packed_chunks<T> key_chunks;
  T* shares;
  T* slopes;

  gradient_space(const attention_layout& size, scratch_parts<T> all)
    : gemm(all.take(gemm_scratch_elements<T>())), keys{all.take(packed_rows<T>::elements(size)),
                                                       size.width},
      values{all.take(packed_rows<T>::elements(size)), size.width},
      key_chunks{all.take(packed_chunks<T>::elements(size)), size.width},
      shares(all.take(block_elements)), slopes(all.take(block_elements)) {}
};

template <class T>
void gradient_of_head(const attention_layout& size, const gradient_head<T>& x,
                      const gradient_space<T>& space) {
  space.keys.fill(x.k, size.keys);
  space.values.fill(x.v, size.keys);
  if (x.dq.data != nullptr)
    space.key_chunks.fill(x.k, size.keys);
  clear_rows(x.dk, size.keys, size.width);
  clear_rows(x.dv, size.keys, size.width);
  for (std::size_t row = 0; row < size.queries; row += block_rows) {
    T products[block_rows];
    const auto count = std::min(block_rows, size.queries - row);
    for (std::size_t r = 0; r < count; ++r)
      products[r] =
        static_cast<T>(product_of_rows(size.width, x.dy.row(row + r), x.y.row(row + r)));
    each_block(size, row, [&](const share_block& b) {
      space.keys.multiply(b, x.q, space.shares);
      space.values.multiply(b, x.dy, space.slopes);
      to_gradients(size, b, x.statistics, products, space.shares, space.slopes);
      if (x.dq.data != nullptr)
        space.key_chunks.multiply(b, space.slopes, x.dq);
      if (x.dk.data != nullptr)
        add_transposed(size, b, space.slopes, x.q, x.dk, space.gemm);
      if (x.dv.data != nullptr)
        add_transposed(size, b, space.shares, x.dy, x.dv, space.gemm);
    });
  }
}

} // namespace

template <class T>
std::size_t attention_scratch_elements(const attention_layout& size) {
  std::size_t result = 0;
  for (const auto n :
       {gemm_scratch_elements<T>(), packed_rows<T>::elements(size), packed_rows<T>::elements(size),
        packed_chunks<T>::elements(size), block_elements, block_elements})
    result += (n + 15) / 16 * 16;
  return result;
}

template <class T>
void attention(const attention_layout& size, range part, const attention_inputs<T>& x, T* y,
               T* statistics, T* scratch) {
  scratch_parts<T> all(scratch);
  const packed_rows<T> keys{all.take(packed_rows<T>::elements(size)), size.width};
  const packed_chunks<T> values{all.take(packed_chunks<T>::elements(size)), size.width};
  T* const shares = all.take(block_elements);
  for (auto i = part.begin; i < part.end; ++i) {
    const auto sample = i / size.heads;
    const auto head = i % size.heads;
    const head_matrix<const T> q(x.q, size.q, sample, head);
    const head_matrix<T> out(y, size.y, sample, head);
    keys.fill({x.k, size.k, sample, head}, size.keys);
    values.fill({x.v, size.v, sample, head}, size.keys);
    T* const own = statistics == nullptr ? nullptr : statistics + i * size.queries;
    for (std::size_t row = 0; row < size.queries; row += block_rows) {
      row_statistics<T> rows;
      each_block(size, row, [&](const share_block& b) {
        keys.multiply(b, q, shares);
        to_shares(size, b, shares, rows, out);
        if (y != nullptr)
          values.multiply(b, shares, out);
      });
      finish_rows(size, row, rows, out, own);
    }
  }
}

template <class T>
void attention_gradient(const attention_layout& size, range part, const attention_inputs<T>& x,
                        const T* dy, const T* y, const T* statistics,
                        const attention_gradients<T>& out, T* scratch) {
  const gradient_space<T> space(size, scratch_parts<T>(scratch));
  for (auto i = part.begin; i < part.end; ++i) {
    const auto sample = i / size.heads;
    const auto head = i % size.heads;
    const gradient_head<T> each{
      {x.q, size.q, sample, head},   {x.k, size.k, sample, head},   {x.v, size.v, sample, head},
      {dy, size.y, sample, head},    {y, size.y, sample, head},     statistics + i * size.queries,
      {out.q, size.q, sample, head}, {out.k, size.k, sample, head}, {out.v, size.v, sample, head}};
    gradient_of_head(size, each, space);
  }
}

#define TROUPE_INSTANTIATE(T)                                                                      \
  template std::size_t attention_scratch_elements<T>(const attention_layout&);                     \
  template void attention(const attention_layout&, range, const attention_inputs<T>&, T*, T*, T*); \
  template void attention_gradient(const attention_layout&, range, const attention_inputs<T>&,     \
                                   const T*, const T*, const T*, const attention_gradients<T>&,    \
                                   T*);

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
