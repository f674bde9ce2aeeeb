#pragma once

#include "kernels/cuda/kernel.hpp"
#include "kernels/narrow_float.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

#ifndef __CUDACC__
#include <bit>
#include <cmath>
#include <source_location>
#endif

// Tensor cores: a warp multiplies tiles of elements of 16 bits, and adds the products to sums in
// float32.
//
// A tile is a matrix (16, 16). Its elements are distributed over the lanes (the threads) of a warp.
// The instruction mma.m16n8k16 defines which lane holds which elements (PTX ISA, section "Matrix
// Fragments for mma.m16n8k16 with floating point type"). A tile has four quarters (8, 8). Each
// register of an operand holds two neighbouring elements of one quarter. The instruction computes
// only 8 columns of a product, so add_product() uses two instructions. All lanes of a warp must
// call these functions together.
//
// The products of elements are exact. The simulator adds them to a sum one after the other, like
// fused multiply-adds. A GPU adds several products at once, and cuts off bits instead of rounding
// (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores"), so the last bits of its sums are
// different.

namespace troupe::cuda {

/// The number of rows and of columns of a tile.
inline constexpr unsigned tensor_edge = 16;
/// In shared memory, rows of tiles begin at multiples of this many elements. If the distance
/// between neighbouring rows is an odd multiple, the rows of a quarter are in different memory
/// banks, which makes access faster.
inline constexpr unsigned tensor_row = 8;

/// A lane's elements of a left operand: rows r and r + 8, and columns c, c + 1, c + 8 and c + 9,
/// where r = lane / 4 and c = 2 (lane % 4).
template <class T>
struct left_tile {
  std::uint32_t pairs[4];
};

/// A lane's elements of a right operand: columns c and c + 8, and rows r, r + 1, r + 8 and r + 9,
/// where c = lane / 4 and r = 2 (lane % 4).
template <class T>
struct right_tile {
  std::uint32_t pairs[4];
};

/// A lane's elements of a sum of products.
struct sum_tile {
  static constexpr unsigned size = 8;
  float x[size];

  /// A lane has elements of two rows. Returns 0 if x[i] is in the first row, and 1 if it is in the
  /// second row.
  static TROUPE_DEVICE unsigned half(unsigned i) { return i / 2 % 2; }
  /// The row and the column of x[i] in the tile.
  static TROUPE_DEVICE unsigned row(unsigned lane, unsigned i) { return lane / 4 + half(i) * 8; }
  static TROUPE_DEVICE unsigned column(unsigned lane, unsigned i) {
    return lane % 4 * 2 + i % 2 + i / 4 * 8;
  }
};

/// A matrix in shared memory. It starts at element `begin`, and its rows are `stride` elements
/// apart. The first element of each row is at a multiple of tensor_row elements, and of 16 bytes.
template <class T>
struct tile_memory {
  view<T> elements;
  unsigned begin, stride;

  /// The part of the matrix that starts at this row and column.
  TROUPE_DEVICE tile_memory at(unsigned row, unsigned column) const {
    return {elements, begin + row * stride + column, stride};
  }
  TROUPE_DEVICE void store(unsigned row, unsigned column, T x) const {
    elements.store(begin + row * stride + column, x);
  }
};

/// Copies element j of `from` (device memory) to element i of `to` (shared memory), or writes 0 if
/// `has` is false. The thread continues before the copy is done. After all threads of the block
/// have called wait_for_copies(), and then barrier(), they see the element. Until then, the
/// contents of the element are not defined. A thread must call wait_for_copies() before it ends.
template <class T>
TROUPE_DEVICE void start_copy(const view<T>& to, std::size_t i, const view<const T>& from,
                              std::size_t j, bool has) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 16);
#ifdef __CUDACC__
  const auto there = static_cast<std::uint32_t>(__cvta_generic_to_shared(to.data + i));
  const auto here = __cvta_generic_to_global(from.data + (has ? j : 0));
  const unsigned bytes = has ? sizeof(T) : 0; // the rest becomes 0
  if constexpr (sizeof(T) == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(there), "l"(here), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(there), "l"(here), "r"(bytes)
                 : "memory");
#else
  const T value = has ? from.load(j) : T{};
  simulation::start_copy(to.data, i, to.size, sizeof(T), &value);
#endif
}
/// Waits for all copies that this thread has started.
TROUPE_DEVICE void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" : : : "memory");
#else
  simulation::wait_for_copies();
#endif
}

/// Loads the four quarters of a tile from memory, in the order of their numbers. If along_columns
/// is true, quarter 1 is below quarter 0; otherwise, it is to the right of quarter 0. If
/// `transposed` is true, each quarter is transposed.
template <bool transposed, bool along_columns, class T>
TROUPE_DEVICE void load_quarters(const thread& t, const tile_memory<T>& from,
                                 std::uint32_t (&pairs)[4]) {
  static_assert(sizeof(T) == 2);
  const auto quarter = [&](unsigned i) {
    return along_columns ? from.at(i % 2 * 8, i / 2 * 8) : from.at(i / 2 * 8, i % 2 * 8);
  };
  // Each lane passes the address of one row of a quarter to the instruction.
  const auto row = quarter(t.lane() / 8).at(t.lane() % 8, 0);
#ifdef __CUDACC__
  const auto address =
    static_cast<std::uint32_t>(__cvta_generic_to_shared(row.elements.data + row.begin));
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
#else
  simulation::check_read(row.elements.data + row.begin, 0, 1, tensor_row * sizeof(T));
  const auto across = t.lane() / 4;
  const auto first = t.lane() % 4 * 2;
  for (unsigned i = 0; i < 4; ++i) {
    pairs[i] = 0;
    for (unsigned j = 0; j < 2; ++j) {
      const auto x =
        transposed ? quarter(i).at(first + j, across) : quarter(i).at(across, first + j);
      pairs[i] |= std::uint32_t{x.elements.load(x.begin).bits} << 16 * j;
    }
  }
#endif
}

/// Loads a left operand. The rows of the memory are the rows of the operand.
template <class T>
TROUPE_DEVICE left_tile<T> load_left(const thread& t, const tile_memory<T>& from) {
  left_tile<T> result;
  load_quarters<false, true>(t, from, result.pairs);
  return result;
}

/// Loads a right operand. The rows of the memory are the rows of the operand.
template <class T>
TROUPE_DEVICE right_tile<T> load_right(const thread& t, const tile_memory<T>& from) {
  right_tile<T> result;
  load_quarters<true, true>(t, from, result.pairs);
  return result;
}

/// Loads a right operand. The rows of the memory are the columns of the operand.
template <class T>
TROUPE_DEVICE right_tile<T> load_right_transposed(const thread& t, const tile_memory<T>& from) {
  right_tile<T> result;
  load_quarters<false, false>(t, from, result.pairs);
  return result;
}

/// Rounds a sum, and returns it as the left operand of another product. Each lane keeps its
/// elements, so no exchange between lanes is needed.
template <class T>
TROUPE_DEVICE left_tile<T> rounded_left(const sum_tile& sum) {
  left_tile<T> result;
  for (unsigned i = 0; i < 4; ++i)
    result.pairs[i] =
      rounded_to<T>(sum.x[2 * i]).bits | std::uint32_t{rounded_to<T>(sum.x[2 * i + 1]).bits} << 16;
  return result;
}

/// sum += the product a b of two tiles.
#ifdef __CUDACC__
template <class T>
TROUPE_DEVICE void add_product(const thread&, const left_tile<T>& a, const right_tile<T>& b,
                               sum_tile& sum) {
  for (unsigned half = 0; half < 2; ++half) {
    float* const x = sum.x + 4 * half;
    const std::uint32_t* const y = b.pairs + 2 * half;
    if constexpr (std::is_same_v<T, bfloat16>)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
                   : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]), "r"(y[0]),
                     "r"(y[1]));
    else
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
                   : "r"(a.pairs[0]), "r"(a.pairs[1]), "r"(a.pairs[2]), "r"(a.pairs[3]), "r"(y[0]),
                     "r"(y[1]));
  }
}
#else
template <class T>
void add_product(const thread& t, const left_tile<T>& a, const right_tile<T>& b, sum_tile& sum,
                 const std::source_location& where = std::source_location::current()) {
  const auto words = [](const std::uint32_t* pairs) {
    return pairs[0] | std::uint64_t{pairs[1]} << 32;
  };
  const auto& lanes =
    simulation::meet({words(a.pairs), words(a.pairs + 2), words(b.pairs), words(b.pairs + 2)},
                     simulation::a_product, where);
  // Returns element `place` of a line: a row of a, or a column of b. The line's first elements are
  // in register `first`, and its elements from number 8 on are in register `first + step`.
  const auto element = [&](unsigned line, unsigned first, unsigned step, unsigned place) {
    const auto& lane = lanes[line % 8 * 4 + place % 8 / 2];
    const auto pair = first + place / 8 * step;
    return widened(
      T{static_cast<std::uint16_t>(lane[pair / 2] >> (pair % 2 * 32 + place % 2 * 16))});
  };
  for (unsigned i = 0; i < sum_tile::size; ++i) {
    const auto row = sum_tile::row(t.lane(), i);
    const auto column = sum_tile::column(t.lane(), i);
    for (unsigned k = 0; k < tensor_edge; ++k)
      sum.x[i] =
        std::fma(element(row, row / 8, 2, k), element(column, 4 + column / 8 * 2, 1, k), sum.x[i]);
  }
}
#endif

} // namespace troupe::cuda
