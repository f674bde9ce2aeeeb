#include "kernels/cuda/movement.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <algorithm>
#include <limits>

namespace troupe::cuda {

namespace {

template <class In, class Out>
struct gather_kernel {
  In x;
  Out out;
  std::size_t extents[cpu::most_axes];
  std::size_t strides[cpu::most_axes];
  unsigned axes;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      std::size_t from = 0;
      auto rest = i;
      for (auto axis = axes; axis-- > 0;) {
        from += rest % extents[axis] * strides[axis];
        rest /= extents[axis];
      }
      out.store(i, x.load(from));
    }
  }
};

template <class In, class Out>
struct copy_kernel {
  In from;
  Out to;
  std::size_t size, from_stride, to_stride, n;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < n; i += t.stride())
      to.store(i / size * to_stride + i % size, from.load(i / size * from_stride + i % size));
  }
};

template <class In, class Out>
struct reverse_kernel {
  In x;    // (rows, n, inner)
  Out out; // (rows, n, inner)
  std::size_t n, inner;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const auto slice = i / inner;
      const auto row = slice / n;
      out.store(i, x.load((row * n + (n - 1 - slice % n)) * inner + i % inner));
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
        total = k == 0 ? part : total + part; // 0 + -0 would be 0
      }
      out.store(i, total);
    }
  }
};

struct embedding_kernel {
  view<const std::int32_t> ids; // (n)
  view<const float> table;      // (entries, columns)
  view<float> out;              // (n, columns)
  std::size_t columns;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      // The conversion turns a negative id into a very large one.
      const auto id = static_cast<std::size_t>(static_cast<std::uint32_t>(ids.load(i / columns)));
      const bool exists = id < table.size / columns;
      out.store(i,
                exists ? table.load(id * columns + i % columns)
                       : std::numeric_limits<float>::quiet_NaN());
    }
  }
};

// Atomics would add in any order. Instead, the first position with an id adds up all positions with
// this id.

constexpr std::int32_t none = -1;

/// next (n): the next position with the same id, or `none`.
struct next_position_kernel {
  view<const std::int32_t> ids; // (n)
  view<std::int32_t> next;      // (n)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < ids.size; i += t.stride()) {
      const auto own = ids.load(i);
      auto j = i + 1;
      while (j < ids.size && ids.load(j) != own)
        ++j;
      next.store(i, j < ids.size ? static_cast<std::int32_t>(j) : none);
    }
  }
};

/// A warp per position. Only the warp of the first position with an id works: it follows the chain.
struct collect_kernel {
  view<const std::int32_t> ids;  // (n)
  view<const std::int32_t> next; // (n)
  view<const float> dy;          // (n, columns)
  view<float> out;               // (entries, columns)
  std::size_t columns;

  TROUPE_DEVICE bool is_first(const thread& t, std::size_t i, std::int32_t own) const {
    unsigned before = 0;
    for (std::size_t j = t.lane(); j < i; j += warp_threads)
      before += ids.load(j) == own ? 1 : 0;
    return warp_sum(t, before) == 0;
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first_warp(); i < ids.size; i += t.warp_stride()) {
      const auto own = ids.load(i);
      const auto row = static_cast<std::size_t>(static_cast<std::uint32_t>(own));
      if (row >= out.size / columns || !is_first(t, i, own))
        continue;
      for (std::size_t c = t.lane(); c < columns; c += warp_threads) {
        float total = 0;
        for (auto j = static_cast<std::int32_t>(i); j != none;
             j = next.load(static_cast<std::size_t>(j)))
          total += dy.load(static_cast<std::size_t>(j) * columns + c);
        out.store(row * columns + c, total);
      }
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
      std::ranges::copy(extents, kernel.extents);
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
             copy_kernel{from, to, what.size, what.from_stride, what.to_stride, n});
    },
    read_elements{what.from, reach(what.from_stride)});
}

void reverse(stream where, std::size_t rows, std::size_t n, std::size_t inner, mixed_input x,
             mixed_output out) {
  const auto size = rows * n * inner;
  with_views(
    out, size,
    [&](auto to, auto from) {
      launch(where, "reverse", {blocks_for(size)}, reverse_kernel{from, to, n, inner});
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
  launch(where, "embedding", {blocks_for(n * columns)},
         embedding_kernel{{ids, n}, {table, entries * columns}, {out, n * columns}, columns});
}

void embedding_gradient(stream where, std::size_t n, std::size_t entries, std::size_t columns,
                        const std::int32_t* ids, const float* dy, std::int32_t* space, float* out) {
  fill_zero(where, entries * columns, out);
  launch(where, "next_position", {blocks_for(n)}, next_position_kernel{{ids, n}, {space, n}});
  launch(
    where, "embedding_gradient", {blocks_for(n, block_warps)},
    collect_kernel{{ids, n}, {space, n}, {dy, n * columns}, {out, entries * columns}, columns});
}

} // namespace troupe::cuda
