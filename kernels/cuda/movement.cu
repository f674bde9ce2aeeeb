#include "kernels/cuda/movement.hpp"

#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::cuda {

namespace {

template <class In, class Out>
struct gather_kernel {
  In x;
  Out out;
  divider extents[cpu::most_axes];
  std::size_t strides[cpu::most_axes];
  unsigned axes;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      std::size_t from = 0;
      auto rest = i;
      for (auto axis = axes; axis-- > 0;) {
        const auto [quotient, index] = extents[axis](rest);
        from += index * strides[axis];
        rest = quotient;
      }
      out.store(i, x.load(from));
    }
  }
};

template <class In, class Out>
struct copy_kernel {
  In from;
  Out to;
  divider size;
  std::size_t from_stride, to_stride, n;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < n; i += t.stride()) {
      const auto [row, column] = size(i);
      to.store(row * to_stride + column, from.load(row * from_stride + column));
    }
  }
};

/// A thread copies a pack of a row at a time. If the rows of a matrix are not aligned, it loads or
/// stores the elements of the pack one by one.
struct resize_kernel {
  view<const std::uint16_t> from;
  view<std::uint16_t> to;
  std::size_t from_rows, from_columns, to_rows, to_columns;
  divider packs; // packs per row of `to`
  bool from_packed, to_packed;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto p = t.first(); p < to_rows * packs.divisor(); p += t.stride()) {
      const auto [row, number] = packs(p);
      const auto j = number * pack_width;
      pack<std::uint16_t, pack_width> x{};
      if (row < from_rows && from_packed && j + pack_width <= from_columns) {
        x = from.load_pack<pack_width>(row * from_columns + j);
      } else if (row < from_rows) {
        TROUPE_UNROLL
        for (unsigned k = 0; k < pack_width; ++k)
          if (j + k < from_columns)
            x.x[k] = from.load(row * from_columns + j + k);
      }
      if (to_packed) {
        to.store_pack(row * to_columns + j, x);
        continue;
      }
      TROUPE_UNROLL
      for (unsigned k = 0; k < pack_width; ++k)
        if (j + k < to_columns)
          to.store(row * to_columns + j + k, x.x[k]);
    }
  }
};

template <class In, class Out>
struct reverse_kernel {
  In x;    // (rows, n, inner)
  Out out; // (rows, n, inner)
  divider n, inner;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const auto [slice, column] = inner(i);
      const auto [row, k] = n(slice);
      const auto from = row * n.divisor() + (n.divisor() - 1 - k);
      out.store(i, x.load(from * inner.divisor() + column));
    }
  }
};

struct blend_kernel {
  view<const float> x;     // (rows, from, inner)
  view<const float> table; // (to, taps, 2)
  view<float> out;         // (rows, to, inner)
  cpu::blend_sizes size;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const auto entry = i / size.inner;
      const auto first = entry / size.to * size.from;
      const auto terms = entry % size.to * size.taps;
      float total = 0;
      for (std::size_t k = 0; k < size.taps; ++k) {
        const auto position = table.load(2 * (terms + k));
        if (position < 0)
          break;
        const auto at = (first + static_cast<std::size_t>(position)) * size.inner + i % size.inner;
        const auto part = table.load(2 * (terms + k) + 1) * x.load(at);
        total = k == 0 ? part : total + part; // 0 + part would change -0 to 0
      }
      out.store(i, total);
    }
  }
};

struct embedding_kernel {
  view<const std::int32_t> ids; // (n)
  view<const float> table;      // (entries, columns)
  view<float> out;              // (n, columns)
  std::size_t entries;
  divider columns;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const auto [row, column] = columns(i);
      // The conversion turns a negative id into a very large one.
      const auto id = static_cast<std::size_t>(static_cast<std::uint32_t>(ids.load(row)));
      out.store(i,
                id < entries ? table.load(id * columns.divisor() + column)
                             : std::numeric_limits<float>::quiet_NaN());
    }
  }
};

// The gradient of embedding. Atomics would add in any order. Therefore, the positions are sorted by
// id. Then, for each id, all positions with this id are added up in ascending order.

/// The number of keys that a block sorts at once.
constexpr std::size_t sorted_run = block_threads;

/// A sort key: an id and a position as one number. Keys are ordered by id, and keys with the same
/// id are ordered by position. All keys are different.
TROUPE_DEVICE std::uint64_t key_of(std::int32_t id, std::size_t position) {
  return (std::uint64_t{static_cast<std::uint32_t>(id)} << 32) | position;
}

/// Sorts each run of sorted_run keys. Each thread has one key of a run, and counts the smaller keys
/// of this run. The count is the new position of the key.
struct sort_runs_kernel {
  view<const std::int32_t> ids; // (n)
  view<std::uint64_t> out;      // (n)

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<std::uint64_t>(sorted_run);
    for (auto begin = t.block() * sorted_run; begin < ids.size; begin += t.blocks() * sorted_run) {
      const auto n = ids.size - begin < sorted_run ? ids.size - begin : sorted_run;
      const auto i = begin + t.index();
      const auto own = t.index() < n ? key_of(ids.load(i), i) : 0;
      space.store(t.index(), own);
      t.barrier();
      std::size_t smaller = 0;
      for (std::size_t j = 0; j < n; ++j)
        smaller += space.load(j) < own ? 1 : 0;
      if (t.index() < n)
        out.store(begin + smaller, own);
      t.barrier();
    }
  }
};

/// Merges pairs of neighbouring sorted runs of `run` keys. The new position of a key in its pair is
/// its position in its own run, plus the number of smaller keys in the other run.
struct merge_runs_kernel {
  view<const std::uint64_t> in; // (n)
  view<std::uint64_t> out;      // (n)
  divider run;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < in.size; i += t.stride()) {
      const auto own = in.load(i);
      const auto number = run.quotient(i);
      const auto other = (number ^ 1) * run.divisor();
      auto low = other < in.size ? other : in.size;
      auto high = in.size - low < run.divisor() ? in.size : low + run.divisor();
      const auto first = low;
      while (low < high) {
        const auto middle = low + (high - low) / 2;
        if (in.load(middle) < own)
          low = middle + 1;
        else
          high = middle;
      }
      const auto pair = (number & ~std::size_t{1}) * run.divisor();
      out.store(pair + (i - number * run.divisor()) + (low - first), own);
    }
  }
};

/// A warp handles a key and a chunk of 32 columns at a time. For the first key with an id, it adds
/// up these columns of the rows of all keys with this id. It skips all other keys. So an id that
/// occurs often, such as padding, still has a warp for each chunk.
struct collect_kernel {
  /// If enough keys have the id, a lane loads this many elements before it adds the first one. So
  /// it waits for memory only twice for all of them: for their keys, and for the elements. They are
  /// added in the order of their keys.
  static constexpr unsigned loads = 8;
  view<const std::uint64_t> keys; // (n)
  view<const float> dy;           // (n, columns)
  view<float> out;                // (entries, columns)
  std::size_t entries, columns;
  divider chunks; // per row

  TROUPE_DEVICE std::size_t id(std::size_t i) const {
    return static_cast<std::size_t>(keys.load(i) >> 32);
  }
  TROUPE_DEVICE std::size_t position(std::size_t i) const {
    return static_cast<std::size_t>(static_cast<std::uint32_t>(keys.load(i)));
  }
  /// The sum of column c over the keys with the id `row`. The first of them is key number i.
  TROUPE_DEVICE float sum(std::size_t row, std::size_t i, std::size_t c) const {
    float total = 0;
    // Keys are sorted. If the last of several keys has this id, all of them have it.
    for (; i + loads <= keys.size && id(i + loads - 1) == row; i += loads) {
      float x[loads];
      TROUPE_UNROLL
      for (unsigned k = 0; k < loads; ++k)
        x[k] = dy.load(position(i + k) * columns + c);
      TROUPE_UNROLL
      for (unsigned k = 0; k < loads; ++k)
        total += x[k];
    }
    for (; i < keys.size && id(i) == row; ++i)
      total += dy.load(position(i) * columns + c);
    return total;
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto task = t.first_warp(); task < keys.size * chunks.divisor(); task += t.warp_stride()) {
      const auto [i, chunk] = chunks(task);
      const auto row = id(i);
      const auto c = chunk * warp_threads + t.lane();
      if (c < columns && row < entries && (i == 0 || id(i - 1) != row))
        out.store(row * columns + c, sum(row, i, c));
    }
  }
};

} // namespace

void gather_strided(stream where, std::span<const std::size_t> extents,
                    std::span<const std::size_t> strides, std::size_t size, mixed_input x,
                    mixed_output out) {
  std::size_t n = 1;
  for (const auto extent : extents)
    n *= extent;
  with_views(
    out, n,
    [&](auto to, auto from) {
      gather_kernel<decltype(from), decltype(to)> kernel{};
      for (std::size_t axis = 0; axis < extents.size(); ++axis)
        kernel.extents[axis] = {extents[axis], n};
      std::ranges::copy(strides, kernel.strides);
      kernel.x = from;
      kernel.out = to;
      kernel.axes = static_cast<unsigned>(extents.size());
      launch(where, "gather_strided", {blocks_for(n)}, kernel);
    },
    read_elements{x, size});
}

void copy_rows(stream where, const row_copy& what) {
  const auto n = what.rows * what.size;
  if (n == 0)
    return;
  const auto reach = [&](std::size_t stride) { return (what.rows - 1) * stride + what.size; };
  with_views(
    what.to, reach(what.to_stride),
    [&](auto to, auto from) {
      launch(where, "copy_rows", {blocks_for(n)},
             copy_kernel{from, to, divider{what.size, n}, what.from_stride, what.to_stride, n});
    },
    read_elements{what.from, reach(what.from_stride)});
}

void resize_matrix(stream where, const matrix_resize& what) {
  const auto packs = (what.to_columns + pack_width - 1) / pack_width;
  const auto packed = [](const void* data, std::size_t columns) {
    return columns % pack_width == 0 && element_address{data, sizeof(std::uint16_t)}.packs();
  };
  launch(where, "resize_matrix", {blocks_for(what.to_rows * packs)},
         resize_kernel{
           {static_cast<const std::uint16_t*>(what.from), what.from_rows * what.from_columns},
           {static_cast<std::uint16_t*>(what.to), what.to_rows * what.to_columns},
           what.from_rows,
           what.from_columns,
           what.to_rows,
           what.to_columns,
           {packs, what.to_rows * packs},
           packed(what.from, what.from_columns),
           packed(what.to, what.to_columns)});
}

void reverse(stream where, std::size_t rows, std::size_t n, std::size_t inner, mixed_input x,
             mixed_output out) {
  const auto size = rows * n * inner;
  with_views(
    out, size,
    [&](auto to, auto from) {
      launch(where, "reverse", {blocks_for(size)},
             reverse_kernel{from, to, divider{n, size}, divider{inner, size}});
    },
    read_elements{x, size});
}

void blend(stream where, std::size_t rows, const cpu::blend_sizes& size, const float* x,
           const float* table, float* out) {
  const auto n = rows * size.to * size.inner;
  launch(where, "blend", {blocks_for(n)},
         blend_kernel{
           {x, rows * size.from * size.inner}, {table, 2 * size.to * size.taps}, {out, n}, size});
}

void embedding(stream where, std::size_t n, std::size_t entries, std::size_t columns,
               const std::int32_t* ids, const float* table, float* out) {
  launch(
    where, "embedding", {blocks_for(n * columns)},
    embedding_kernel{
      {ids, n}, {table, entries * columns}, {out, n * columns}, entries, {columns, n * columns}});
}

std::size_t embedding_gradient_space(std::size_t n) noexcept {
  return 2 * n;
}

void embedding_gradient(stream where, std::size_t n, std::size_t entries, std::size_t columns,
                        const std::int32_t* ids, const float* dy, std::uint64_t* space, float* out,
                        bool rows_only) {
  if (!rows_only)
    fill_zero(where, entries * columns, out);
  auto* from = space;
  auto* to = space + n;
  launch(where, "sort_runs", {blocks_for(n), sorted_run * sizeof(std::uint64_t)},
         sort_runs_kernel{{ids, n}, {from, n}});
  for (auto run = sorted_run; run < n; run *= 2) {
    launch(where, "merge_runs", {blocks_for(n)}, merge_runs_kernel{{from, n}, {to, n}, {run, n}});
    std::swap(from, to);
  }
  const auto chunks = (columns + warp_threads - 1) / warp_threads;
  launch(where, "embedding_gradient", {blocks_for(n * chunks, block_warps)},
         collect_kernel{{from, n},
                        {dy, n * columns},
                        {out, entries * columns},
                        entries,
                        columns,
                        {chunks, n * chunks}});
}

} // namespace troupe::cuda
