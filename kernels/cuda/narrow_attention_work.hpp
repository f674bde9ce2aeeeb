#pragma once

#include "kernels/cpu/math.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/attention_operands.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/tensor_core.hpp"
#include "kernels/graph/dtype.hpp"
#include "kernels/narrow_float.hpp"
#include "kernels/plan/attention_layout.hpp"

#include <cstddef>
#include <cstdint>

// How a block of threads computes tiles of attention with tensor cores
// (kernels/cuda/narrow_attention.hpp).

namespace troupe::cuda {

// Each warp holds 16 rows of one matrix, such as queries, in registers. The block of threads goes
// through the rows of two other matrices, such as keys and values, in steps. For each step, it
// loads narrow_step_rows rows of both matrices into shared memory.

inline constexpr unsigned narrow_block_rows = block_warps * tensor_edge;
inline constexpr unsigned narrow_step_rows = narrow_block_rows / 2;
/// The number of tiles in the rows of a step.
inline constexpr unsigned narrow_step_tiles = narrow_step_rows / tensor_edge;

inline std::size_t narrow_blocks_of(std::size_t rows) {
  return (rows + narrow_block_rows - 1) / narrow_block_rows;
}

/// exp(x) with a relative error of about 2^-21, which is far below the rounding to 16 bits. A GPU
/// has an instruction for powers of 2.
TROUPE_DEVICE float narrow_exp(float x) {
#ifdef __CUDACC__
  return __expf(x);
#else
  return cpu::exp(x);
#endif
}

/// Calls f(head, first row) for each task of this block of threads: a block of rows of a head. With
/// `last_first`, the last rows of all heads come first. In causal attention, these rows take
/// longest, and the multiprocessors should not wait for them at the end.
template <class F>
TROUPE_DEVICE void each_narrow_task(const thread& t, std::size_t heads, std::size_t blocks_per_head,
                                    bool last_first, F f) {
  const auto all = static_cast<unsigned>(heads);
  const auto blocks = static_cast<unsigned>(blocks_per_head);
  for (auto task = static_cast<unsigned>(t.block()); task < all * blocks;
       task += static_cast<unsigned>(t.blocks())) {
    const auto block = task / all;
    f(task % all, (last_first ? blocks - 1 - block : block) * narrow_block_rows);
  }
}

/// A block of threads that works on heads of up to 16 * `columns` columns.
template <class T, unsigned columns>
struct narrow_work {
  using head = head_view<view<const T>>;
  static constexpr unsigned width = columns * tensor_edge;
  static constexpr unsigned stride = width + tensor_row;
  static constexpr std::size_t shared_bytes = narrow_block_rows * stride * sizeof(T);

  const thread& t;
  tile_memory<T> first,
    second; // each (narrow_step_rows, width); together (narrow_block_rows, width)

  TROUPE_DEVICE explicit narrow_work(const thread& t) : t(t) {
    const auto all = t.shared<T>(narrow_block_rows * stride);
    first = {all, 0, stride};
    second = {all, narrow_step_rows * stride, stride};
  }

  /// 16 bytes of a row, which one instruction loads.
  struct alignas(tensor_row * sizeof(T)) piece {
    std::uint32_t words[tensor_row * sizeof(T) / sizeof(std::uint32_t)];
  };
  /// True if all rows of a head consist of whole pieces with aligned addresses. All threads get the
  /// same result, so they take the same branch.
  static TROUPE_DEVICE bool has_pieces(const head& x) {
    return (reinterpret_cast<std::uintptr_t>(x.x.data + x.begin) | x.stride * sizeof(T)
            | x.width * sizeof(T))
      % sizeof(piece)
      == 0;
  }
  template <unsigned rows>
  TROUPE_DEVICE void load_pieces(const tile_memory<T>& to, const head& x, unsigned row) const {
    constexpr auto per_row = width / tensor_row;
    const view<const piece> from{reinterpret_cast<const piece*>(x.x.data + x.begin),
                                 (x.x.size - x.begin) / tensor_row};
    const view<piece> shared{reinterpret_cast<piece*>(to.elements.data + to.begin),
                             (to.elements.size - to.begin) / tensor_row};
    for (unsigned r = 0; r < rows * per_row / block_threads; ++r) {
      const auto i = (t.index() + r * block_threads) / per_row;
      const auto j = (t.index() + r * block_threads) % per_row;
      const bool has = x.has(row + i, j * tensor_row);
      shared.store(i * (stride / tensor_row) + j,
                   has ? from.load((row + i) * (x.stride / tensor_row) + j) : piece{});
    }
  }

  /// The first row of this warp, in a block that starts at `row`.
  TROUPE_DEVICE unsigned own_row(unsigned row) const { return row + t.warp() * tensor_edge; }

  template <unsigned rows>
  TROUPE_DEVICE void load(const tile_memory<T>& to, const head& x, unsigned row) const {
    if (has_pieces(x)) {
      load_pieces<rows>(to, x, row);
      return;
    }
    TROUPE_ONE_BY_ONE
    for (unsigned r = 0; r < rows * width / block_threads; ++r) {
      const auto i = t.index() + r * block_threads;
      to.store(i / width, i % width, x.at(row + i / width, i % width));
    }
  }
  /// Loads this warp's rows of a block into registers. The block starts at `row`.
  TROUPE_DEVICE void load_own(const head& x, unsigned row, left_tile<T> (&to)[columns]) const {
    t.barrier(); // all threads have read the old contents of this memory
    load<narrow_block_rows>(first, x, row);
    t.barrier();
    TROUPE_UNROLL
    for (unsigned c = 0; c < columns; ++c)
      to[c] = load_left(t, first.at(t.warp() * tensor_edge, c * tensor_edge));
  }
  TROUPE_DEVICE void load_step(const head& x, const head& y, unsigned row) const {
    t.barrier(); // all threads have read the old contents of this memory
    load<narrow_step_rows>(first, x, row);
    load<narrow_step_rows>(second, y, row);
    t.barrier();
  }

  /// Returns the product of `own` and the transposed rows of tile i of a step.
  TROUPE_DEVICE sum_tile multiply(const left_tile<T> (&own)[columns], const tile_memory<T>& step,
                                  unsigned i) const {
    sum_tile result{};
    TROUPE_UNROLL
    for (unsigned c = 0; c < columns; ++c)
      add_product(t, own[c], load_right_transposed(t, step.at(i * tensor_edge, c * tensor_edge)),
                  result);
    return result;
  }
  /// Rounds x, multiplies it by the rows of tile i of a step, and adds the product to `sums`.
  TROUPE_DEVICE void add(const sum_tile& x, const tile_memory<T>& step, unsigned i,
                         sum_tile (&sums)[columns]) const {
    const auto factors = rounded_left<T>(x);
    TROUPE_UNROLL
    for (unsigned c = 0; c < columns; ++c)
      add_product(t, factors, load_right(t, step.at(i * tensor_edge, c * tensor_edge)), sums[c]);
  }

  // The sum, and the maximum, over a row of a tile. 4 lanes share a row.
  TROUPE_DEVICE float row_sum(float x) const {
    for (unsigned mask = 2; mask > 0; mask /= 2)
      x += t.shuffle_xor(x, mask);
    return x;
  }
  TROUPE_DEVICE float row_maximum(float x) const {
    for (unsigned mask = 2; mask > 0; mask /= 2) {
      const float other = t.shuffle_xor(x, mask);
      x = other > x ? other : x;
    }
    return x;
  }

  /// Writes this warp's rows of a block that starts at `row`.
  TROUPE_DEVICE void write(const head_view<narrow_target<T>>& out, unsigned row,
                           const sum_tile (&x)[columns]) const {
    TROUPE_UNROLL
    for (unsigned c = 0; c < columns; ++c)
      TROUPE_UNROLL
    for (unsigned i = 0; i < sum_tile::size; ++i) {
      const auto r = own_row(row) + sum_tile::row(t.lane(), i);
      const auto column = c * tensor_edge + sum_tile::column(t.lane(), i);
      if (out.has(r, column))
        out.x.store(out.place(r, column), x[c].x[i]);
    }
  }
};

template <class T>
attention_operands<view<const T>> narrow_operands_of(const attention_layout& size,
                                                     const attention_inputs& x) {
  const auto all = [&](const mixed_input& from, const head_rows& rows) {
    return view<const T>{static_cast<const T*>(from.data), elements_of(size, rows)};
  };
  return {size, all(x.q, size.q), all(x.k, size.k), all(x.v, size.v)};
}

/// A view of a result of n elements. It is null if there is no result.
template <class T>
narrow_target<T> narrow_target_of(const mixed_output& x, std::size_t n) {
  return {static_cast<T*>(x.data), n};
}

/// Calls f(T{}, known_columns) for this type T of 16 bits and for the narrowest kernel into which
/// heads of this width fit (with_columns).
template <class F>
void with_narrow_kernel(dtype type, std::size_t width, F f) {
  with_columns(width, [&](auto columns) {
    if (type == dtype::bfloat16)
      f(bfloat16{}, columns);
    else
      f(float16{}, columns);
  });
}

} // namespace troupe::cuda
