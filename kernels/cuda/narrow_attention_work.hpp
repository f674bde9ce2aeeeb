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

/// exp(x) for x <= 0. A GPU computes it with its instruction for powers of 2. The relative error
/// grows with |x|, to about 2^-17 at -80. This error is far below that of the rounding to 16 bits.
TROUPE_DEVICE float narrow_exp(float x) {
#ifdef __CUDACC__
  return __expf(x);
#else
  return cpu::exp(x);
#endif
}

/// Calls f(head, first row) for each task of this block of threads. A task is a range of
/// narrow_block_rows rows of a head. With `last_first`, the last rows of all heads come first. In
/// causal attention, the last rows take longest. If they came last, most multiprocessors would wait
/// for them at the end. Tasks are counted in 32 bits (size_limits.hpp).
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
  /// While a block computes with the tiles of a step, the tiles of the next step are copied to
  /// another buffer. For wide heads, there is only one buffer, because of the size of shared
  /// memory.
  static constexpr unsigned buffers = columns <= 4 ? 2 : 1;
  static constexpr unsigned buffer_elements = narrow_block_rows * stride;
  static constexpr std::size_t tile_bytes = std::size_t{buffers} * buffer_elements * sizeof(T);
  static constexpr unsigned numbers_of_step = 2 * narrow_step_rows;
  static constexpr std::size_t shared_bytes =
    tile_bytes + std::size_t{buffers} * numbers_of_step * sizeof(float);

  const thread& t;

  /// The rows of a step in shared memory: `first` and `second` are rows (narrow_step_rows, width)
  /// of two heads. `numbers` has two numbers for each row (row_numbers).
  struct step {
    tile_memory<T> first, second;
    view<float> numbers; // (2, narrow_step_rows) from number `begin` on
    unsigned begin;

    TROUPE_DEVICE float number(unsigned which, unsigned row) const {
      return numbers.load(begin + which * narrow_step_rows + row);
    }
  };
  /// Two vectors (rows) with a number for each row of a head, such as `statistics` and `products`
  /// of queries. Null if the kernel needs no numbers.
  struct row_numbers {
    view<const float> first, second;
    /// The number of the head's first row in both views.
    std::size_t place = 0;
  };

  TROUPE_DEVICE explicit narrow_work(const thread& t) : t(t) {}

  TROUPE_DEVICE step step_in(unsigned buffer) const {
    const auto tiles = t.shared<T>(buffers * buffer_elements);
    const auto numbers = t.shared<float>(shared_bytes / sizeof(float));
    const auto begin = buffer * buffer_elements;
    return {{tiles, begin, stride},
            {tiles, begin + narrow_step_rows * stride, stride},
            numbers,
            static_cast<unsigned>(tile_bytes / sizeof(float)) + buffer * numbers_of_step};
  }

  /// 16 bytes of a row, which a single instruction loads.
  struct alignas(tensor_row * sizeof(T)) piece {
    std::uint32_t words[tensor_row * sizeof(T) / sizeof(std::uint32_t)];
  };
  /// True if all rows of a head consist of whole pieces of 16 bytes (`piece`) with aligned
  /// addresses. All threads get the same result, so they take the same branch.
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
      start_copy(shared, i * (stride / tensor_row) + j, from,
                 (row + i) * (x.stride / tensor_row) + j, x.has(row + i, j * tensor_row));
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
    // The block has twice as many rows as a step. So its rows fill the memory of step.first, and
    // the memory of step.second behind it.
    const auto memory = step_in(0).first;
    t.barrier(); // all threads have read the old contents of this memory
    load<narrow_block_rows>(memory, x, row);
    wait_for_copies();
    t.barrier();
    TROUPE_UNROLL
    for (unsigned c = 0; c < columns; ++c)
      to[c] = load_left(t, memory.at(t.warp() * tensor_edge, c * tensor_edge));
  }
  TROUPE_DEVICE void load_step(const step& to, const head& x, const head& y,
                               const row_numbers& numbers, unsigned row) const {
    load<narrow_step_rows>(to.first, x, row);
    load<narrow_step_rows>(to.second, y, row);
    if (numbers.first.data == nullptr || t.index() >= numbers_of_step)
      return;
    const auto i = t.index() % narrow_step_rows;
    start_copy(to.numbers, to.begin + t.index(),
               t.index() < narrow_step_rows ? numbers.first : numbers.second,
               numbers.place + row + i, row + i < x.count);
  }
  /// Calls f(first row, step) for each step of rows [begin, end) of two heads.
  template <class F>
  TROUPE_DEVICE void each_step(const head& x, const head& y, unsigned begin, unsigned end, F f,
                               const row_numbers& numbers = {}) const {
    unsigned buffer = 0;
    t.barrier(); // all threads have read the old contents of this memory
    if (begin < end)
      load_step(step_in(0), x, y, numbers, begin);
    TROUPE_ONE_BY_ONE
    for (auto row = begin; row < end; row += narrow_step_rows) {
      wait_for_copies();
      t.barrier();
      const auto next = row + narrow_step_rows;
      if (buffers > 1 && next < end)
        load_step(step_in(1 - buffer), x, y, numbers, next);
      f(row, step_in(buffer));
      if (buffers > 1) {
        buffer = 1 - buffer;
      } else {
        t.barrier();
        if (next < end)
          load_step(step_in(0), x, y, numbers, next);
      }
    }
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
  /// Rounds x, multiplies it by rows [i * tensor_edge, (i + 1) * tensor_edge) of `step`, and adds
  /// the product to `sums`.
  TROUPE_DEVICE void add(const sum_tile& x, const tile_memory<T>& step, unsigned i,
                         sum_tile (&sums)[columns]) const {
    const auto factors = rounded_left<T>(x);
    TROUPE_UNROLL
    for (unsigned c = 0; c < columns; ++c)
      add_product(t, factors, load_right(t, step.at(i * tensor_edge, c * tensor_edge)), sums[c]);
  }

  // The sum, and the maximum, of x over the 4 lanes that have elements of the same row of a tile.
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

/// Calls f(T{}, known_columns). T is the 16-bit type that `type` names. known_columns is the
/// smallest number of columns into which heads of this width fit (with_columns).
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
