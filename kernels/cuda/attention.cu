#include "kernels/cuda/attention.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cuda/attention_operands.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/narrow_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>

namespace troupe::cuda {

namespace {

// A block of threads computes a tile (tile_rows, tile_columns) of the product A B^T, such as
// attention scores. It changes the tile into attention probabilities ("shares") or into gradients
// of scores. Then it multiplies the tile by rows of a third matrix. Thread (ty, tx) computes every
// 16th row (`along` is 16) from row ty on, and every 16th column from column tx on.

constexpr unsigned tile_rows = 64;
constexpr unsigned tile_columns = 32;
/// Columns of a head that are in shared memory at the same time.
constexpr unsigned slice = 32;
/// Threads along an edge of a tile.
constexpr unsigned along = 16;
static_assert(along * along == block_threads && along == attention_columns);
constexpr unsigned own_rows = tile_rows / along;
constexpr unsigned own_columns = tile_columns / along;
/// The distance between rows of a tile in shared memory. It is padded: with an odd distance, the
/// threads of a warp read from different memory banks.
constexpr unsigned padded = 33;
constexpr float infinity = attention_infinity;

using operands = attention_operands<mixed_view>;
using input_head = operands::head;

/// The number of elements of shared memory that the tiles need. Heads have up to `columns` *
/// `along` columns.
template <unsigned columns>
constexpr unsigned shared_elements = tile_rows* padded
  + std::max((tile_rows + tile_columns) * padded, tile_columns* along* columns);

/// One thread's share of the work of its block. The final product is the tile times the third
/// matrix. The thread computes `own_rows` rows and `columns` columns of it. Its columns are tx, tx
/// + `along`, tx + 2 * `along` and so on.
template <unsigned columns>
struct tile_work {
  const thread& t;
  unsigned tx, ty;
  view<float> tile;   // (tile_rows, padded)
  view<float> left;   // (tile_rows, padded)
  view<float> right;  // (tile_columns, padded)
  view<float> values; // (tile_columns, along * columns), in the memory of left and right

  TROUPE_DEVICE explicit tile_work(const thread& t) : t(t) {
    const auto all = t.shared<float>(shared_elements<columns>);
    constexpr auto size = tile_rows * padded;
    tx = t.index() % along;
    ty = t.index() / along;
    tile = {all.data, size};
    left = {all.data + size, size};
    right = {all.data + 2 * size, tile_columns * padded};
    values = {all.data + size, tile_columns * along * columns};
  }

  TROUPE_DEVICE void load(const view<float>& to, unsigned rows, const input_head& x, unsigned row,
                          unsigned column) const {
    for (auto i = t.index(); i < rows * slice; i += block_threads)
      to.store(i / slice * padded + i % slice, x.at(row + i / slice, column + i % slice));
  }

  /// sums += the outer product of a and b.
  template <unsigned n>
  static TROUPE_DEVICE void add_outer(const float (&a)[own_rows], const float (&b)[n],
                                      float (&sums)[own_rows][n]) {
    for (unsigned i = 0; i < own_rows; ++i)
      for (unsigned j = 0; j < n; ++j)
        sums[i][j] = std::fma(a[i], b[j], sums[i][j]);
  }

  /// Computes result = A B^T. A is the rows of a, beginning with number `row`. B is the rows of b,
  /// beginning with number `column`.
  TROUPE_DEVICE void multiply(const input_head& a, unsigned row, const input_head& b,
                              unsigned column, float (&result)[own_rows][own_columns]) const {
    for (auto& x : result)
      for (auto& y : x)
        y = 0;
    for (unsigned first = 0; first < a.width; first += slice) {
      t.barrier(); // all threads have read the old contents of this memory
      load(left, tile_rows, a, row, first);
      load(right, tile_columns, b, column, first);
      t.barrier();
      for (unsigned p = 0; p < slice; ++p) {
        float x[own_rows];
        float y[own_columns];
        for (unsigned i = 0; i < own_rows; ++i)
          x[i] = left.load((ty + i * along) * padded + p);
        for (unsigned j = 0; j < own_columns; ++j)
          y[j] = right.load((tx + j * along) * padded + p);
        add_outer(x, y, result);
      }
    }
  }

  TROUPE_DEVICE void store(const float (&x)[own_rows][own_columns]) const {
    for (unsigned i = 0; i < own_rows; ++i)
      for (unsigned j = 0; j < own_columns; ++j)
        tile.store((ty + i * along) * padded + tx + j * along, x[i][j]);
  }

  /// Computes sums += T X. T is the tile that store() has written. X is the rows of x, beginning
  /// with number `row`.
  TROUPE_DEVICE void add_product(const input_head& x, unsigned row,
                                 float (&sums)[own_rows][columns]) const {
    constexpr auto width = along * columns;
    t.barrier(); // the tile is complete, and all threads have read the earlier tiles
    for (auto i = t.index(); i < tile_columns * width; i += block_threads)
      values.store(i, x.at(row + i / width, i % width));
    t.barrier();
    for (unsigned p = 0; p < tile_columns; ++p) {
      float a[own_rows];
      float b[columns];
      for (unsigned i = 0; i < own_rows; ++i)
        a[i] = tile.load((ty + i * along) * padded + p);
      for (unsigned j = 0; j < columns; ++j)
        b[j] = values.load(p * width + tx + j * along);
      add_outer(a, b, sums);
    }
  }

  /// row_sum() adds up x over the threads that compute elements of the same row. row_maximum()
  /// returns the largest x of these threads.
  TROUPE_DEVICE float row_sum(float x) const {
    for (unsigned mask = along / 2; mask > 0; mask /= 2)
      x += t.shuffle_xor(x, mask);
    return x;
  }
  TROUPE_DEVICE float row_maximum(float x) const {
    for (unsigned mask = along / 2; mask > 0; mask /= 2) {
      const float other = t.shuffle_xor(x, mask);
      x = other > x ? other : x;
    }
    return x;
  }

  TROUPE_DEVICE void write(const head_view<mixed_target>& out, unsigned row,
                           const float (&x)[own_rows][columns]) const {
    for (unsigned i = 0; i < own_rows; ++i)
      for (unsigned j = 0; j < columns; ++j)
        if (out.has(row + ty + i * along, tx + j * along))
          out.x.store(out.place(row + ty + i * along, tx + j * along), x[i][j]);
  }
};

template <unsigned columns>
struct attention_kernel {
  static constexpr unsigned blocks_at_once = 2;
  operands x;
  mixed_target y;
  view<float> statistics; // (batch, heads, queries)
  std::size_t blocks_per_head;

  /// Replaces each product of a tile by exp(product - m), where m is the largest product of the row
  /// so far. If this tile increases m, the sums over earlier tiles (`totals`, `sums`) are
  /// multiplied by a factor, so that they also refer to the new m.
  TROUPE_DEVICE void to_exponentials(const tile_work<columns>& work, unsigned row, unsigned column,
                                     float (&products)[own_rows][own_columns],
                                     float (&largest)[own_rows], float (&totals)[own_rows],
                                     float (&sums)[own_rows][columns]) const {
    const auto factor = static_cast<float>(x.size.factor);
    for (unsigned i = 0; i < own_rows; ++i) {
      const auto query = row + work.ty + i * along;
      float found = largest[i];
      for (unsigned j = 0; j < own_columns; ++j) {
        auto& p = products[i][j];
        p = x.sees(query, column + work.tx + j * along) ? p * factor : -infinity;
        found = p > found ? p : found;
      }
      found = work.row_maximum(found);
      const float shift = found == -infinity ? 0 : found;
      float total = 0;
      for (unsigned j = 0; j < own_columns; ++j) {
        products[i][j] = cpu::exp(products[i][j] - shift);
        total += products[i][j];
      }
      const float shrink = cpu::exp(largest[i] - shift);
      totals[i] = totals[i] * shrink + work.row_sum(total);
      for (auto& sum : sums[i])
        sum *= shrink;
      largest[i] = found;
    }
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const tile_work<columns> work(t);
    const auto tasks = x.size.batch * x.size.heads * blocks_per_head;
    for (auto task = t.block(); task < tasks; task += t.blocks()) {
      const auto head = task / blocks_per_head;
      const auto row = static_cast<unsigned>(task % blocks_per_head) * tile_rows;
      const auto q = x.q_of(head);
      const auto k = x.k_of(head);
      const auto v = x.v_of(head);
      float sums[own_rows][columns] = {};
      float largest[own_rows];
      float totals[own_rows] = {};
      for (auto& one : largest)
        one = -infinity;
      for (unsigned column = 0; column < x.end_of_keys<tile_rows>(row); column += tile_columns) {
        float products[own_rows][own_columns];
        work.multiply(q, row, k, column, products);
        to_exponentials(work, row, column, products, largest, totals, sums);
        work.store(products);
        work.add_product(v, column, sums);
      }
      for (unsigned i = 0; i < own_rows; ++i) {
        const auto query = row + work.ty + i * along;
        for (auto& sum : sums[i])
          sum /= totals[i];
        if (statistics.data != nullptr && work.tx == 0 && query < x.queries())
          statistics.store(head * x.size.queries + query, largest[i] + cpu::log(totals[i]));
      }
      if (y.data != nullptr)
        work.write({y, x.size.y, head, x.size, x.size.queries}, row, sums);
    }
  }
};

template <unsigned columns>
struct query_gradient_kernel {
  static constexpr unsigned blocks_at_once = 1;
  operands x;
  mixed_view dy, y;
  view<const float> statistics; // (batch, heads, queries)
  view<float> products;         // (batch, heads, queries): sum of dy y
  mixed_target dq;
  std::size_t blocks_per_head;

  /// Computes the sum of dy * y for each row of this thread.
  TROUPE_DEVICE void multiply_results(const tile_work<columns>& work, std::size_t head,
                                      unsigned row, float (&product)[own_rows]) const {
    const auto dy_of = x.y_of(dy, head);
    const auto y_of = x.y_of(y, head);
    for (unsigned i = 0; i < own_rows; ++i) {
      const auto query = row + work.ty + i * along;
      float sum = 0;
      for (unsigned c = work.tx; c < dy_of.width; c += along)
        sum = std::fma(dy_of.at(query, c), y_of.at(query, c), sum);
      product[i] = work.row_sum(sum);
      if (work.tx == 0 && query < x.queries())
        products.store(head * x.size.queries + query, product[i]);
    }
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const tile_work<columns> work(t);
    const auto factor = static_cast<float>(x.size.factor);
    const auto tasks = x.size.batch * x.size.heads * blocks_per_head;
    for (auto task = t.block(); task < tasks; task += t.blocks()) {
      const auto head = task / blocks_per_head;
      const auto row = static_cast<unsigned>(task % blocks_per_head) * tile_rows;
      float product[own_rows];
      multiply_results(work, head, row, product);
      if (dq.data == nullptr)
        continue;
      float shift[own_rows];
      for (unsigned i = 0; i < own_rows; ++i) {
        const auto query = row + work.ty + i * along;
        shift[i] = query < x.queries() ? statistics.load(head * x.size.queries + query) : 0;
      }
      const auto k = x.k_of(head);
      float sums[own_rows][columns] = {};
      for (unsigned column = 0; column < x.end_of_keys<tile_rows>(row); column += tile_columns) {
        float shares[own_rows][own_columns];
        float slopes[own_rows][own_columns];
        work.multiply(x.q_of(head), row, k, column, shares);
        work.multiply(x.y_of(dy, head), row, x.v_of(head), column, slopes);
        for (unsigned i = 0; i < own_rows; ++i)
          for (unsigned j = 0; j < own_columns; ++j) {
            const bool seen = x.sees(row + work.ty + i * along, column + work.tx + j * along);
            const float share = cpu::exp(shares[i][j] * factor - shift[i]);
            slopes[i][j] = seen ? slope_of(share, slopes[i][j], product[i], factor) : 0;
          }
        work.store(slopes);
        work.add_product(k, column, sums);
      }
      work.write({dq, x.size.q, head, x.size, x.size.queries}, row, sums);
    }
  }
};

/// Computes the gradients of k and v. In this kernel, a tile has a row for each key, and a column
/// for each query.
template <unsigned columns>
struct key_gradient_kernel {
  static constexpr unsigned blocks_at_once = 1;
  operands x;
  mixed_view dy;
  view<const float> statistics; // (batch, heads, queries)
  view<const float> products;   // (batch, heads, queries)
  mixed_target dk, dv;
  std::size_t blocks_per_head;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const tile_work<columns> work(t);
    const auto factor = static_cast<float>(x.size.factor);
    const auto tasks = x.size.batch * x.size.heads * blocks_per_head;
    for (auto task = t.block(); task < tasks; task += t.blocks()) {
      const auto head = task / blocks_per_head;
      const auto row = static_cast<unsigned>(task % blocks_per_head) * tile_rows;
      const auto q = x.q_of(head);
      const auto k = x.k_of(head);
      const auto v = x.v_of(head);
      const auto dy_of = x.y_of(dy, head);
      float k_sums[own_rows][columns] = {};
      float v_sums[own_rows][columns] = {};
      for (auto column = x.size.causal ? row : 0; column < x.queries(); column += tile_columns) {
        float shares[own_rows][own_columns];
        float slopes[own_rows][own_columns];
        work.multiply(k, row, q, column, shares);
        for (unsigned j = 0; j < own_columns; ++j) {
          const auto query = column + work.tx + j * along;
          const float shift =
            query < x.queries() ? statistics.load(head * x.size.queries + query) : 0;
          for (unsigned i = 0; i < own_rows; ++i)
            shares[i][j] = x.sees(query, row + work.ty + i * along)
              ? cpu::exp(shares[i][j] * factor - shift)
              : 0;
        }
        work.store(shares);
        work.add_product(dy_of, column, v_sums);
        work.multiply(v, row, dy_of, column, slopes);
        for (unsigned j = 0; j < own_columns; ++j) {
          const auto query = column + work.tx + j * along;
          const float product =
            query < x.queries() ? products.load(head * x.size.queries + query) : 0;
          for (unsigned i = 0; i < own_rows; ++i)
            slopes[i][j] = x.sees(query, row + work.ty + i * along)
              ? slope_of(shares[i][j], slopes[i][j], product, factor)
              : 0;
        }
        work.store(slopes);
        work.add_product(q, column, k_sums);
      }
      if (dk.data != nullptr)
        work.write({dk, x.size.k, head, x.size, x.size.keys}, row, k_sums);
      if (dv.data != nullptr)
        work.write({dv, x.size.v, head, x.size, x.size.keys}, row, v_sums);
    }
  }
};

mixed_view view_of(const mixed_input& x, std::size_t n) {
  return {x.data, n, x.type};
}

mixed_target target_of(const mixed_output& x, std::size_t n) {
  return {x.data, n, x.type};
}

operands operands_of(const attention_layout& size, const attention_inputs& x) {
  return {size, view_of(x.q, elements_of(size, size.q)), view_of(x.k, elements_of(size, size.k)),
          view_of(x.v, elements_of(size, size.v))};
}

std::size_t blocks_of(std::size_t rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

template <unsigned columns>
launch_size launch_for(const attention_layout& size, std::size_t blocks_per_head) {
  return {blocks_for(size.batch * size.heads * blocks_per_head, 1),
          shared_elements<columns> * sizeof(float)};
}

} // namespace

void attention(stream where, const attention_layout& size, const attention_inputs& x,
               mixed_output y, float* statistics) {
  if (fits_tensor_cores(x, {}, {y})) {
    narrow_attention(where, size, x, y, statistics);
    return;
  }
  const auto per_head = blocks_of(size.queries);
  with_columns(size.width, [&](auto columns) {
    constexpr auto n = decltype(columns)::value;
    launch(where, "attention", launch_for<n>(size, per_head),
           attention_kernel<n>{operands_of(size, x),
                               target_of(y, elements_of(size, size.y)),
                               {statistics, size.batch * size.heads * size.queries},
                               per_head});
  });
}

void attention_gradient(stream where, const attention_layout& size, const attention_inputs& x,
                        mixed_input dy, mixed_input y, const float* statistics, float* products,
                        const attention_gradients& out) {
  if (fits_tensor_cores(x, {dy}, {out.q, out.k, out.v})) {
    narrow_attention_gradient(where, size, x, dy, y, statistics, products, out);
    return;
  }
  const auto rows = size.batch * size.heads * size.queries;
  const auto all = operands_of(size, x);
  const auto dy_view = view_of(dy, elements_of(size, size.y));
  const auto y_view = view_of(y, elements_of(size, size.y));
  with_columns(size.width, [&](auto columns) {
    constexpr auto n = decltype(columns)::value;
    const auto by_query = blocks_of(size.queries);
    launch(where, "query_gradient", launch_for<n>(size, by_query),
           query_gradient_kernel<n>{all,
                                    dy_view,
                                    y_view,
                                    {statistics, rows},
                                    {products, rows},
                                    target_of(out.q, elements_of(size, size.q)),
                                    by_query});
    if (out.k.data == nullptr && out.v.data == nullptr)
      return;
    const auto by_key = blocks_of(size.keys);
    launch(where, "key_gradient", launch_for<n>(size, by_key),
           key_gradient_kernel<n>{all,
                                  dy_view,
                                  {statistics, rows},
                                  {products, rows},
                                  target_of(out.k, elements_of(size, size.k)),
                                  target_of(out.v, elements_of(size, size.v)),
                                  by_key});
  });
}

} // namespace troupe::cuda
