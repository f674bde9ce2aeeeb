#include "kernels/cuda/reductions.hpp"

#include "kernels/cuda/channel_sums.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <algorithm>

namespace troupe::cuda {

namespace {

// A sum has two stages (Harris 2007, "Optimizing parallel reduction in CUDA"): each block adds up a
// part of the elements, and then one block adds up the results of all blocks.

constexpr std::size_t sum_blocks = sum_space / 2;

template <unsigned W>
TROUPE_DEVICE pack<double, W> load_doubles(width<W>, const view<const double>& x, std::size_t i,
                                           bool) {
  pack<double, W> result;
  TROUPE_UNROLL
  for (unsigned k = 0; k < W; ++k)
    result.x[k] = x.load(i + k);
  return result;
}

/// A Term has `double operator()(width<W>, std::size_t i, bool packed) const`, which returns the
/// sum of the terms [i, i + W).
template <class Term>
struct partial_sum {
  Term term;
  std::size_t n;
  bool packed;
  view<double> partial; // (blocks)

  TROUPE_DEVICE void operator()(const thread& t) const {
    double total = 0;
    const auto packs = n / pack_width;
    for (auto p = t.first(); p < packs; p += t.stride())
      total += term(width<pack_width>{}, p * pack_width, packed);
    for (auto i = packs * pack_width + t.first(); i < n; i += t.stride())
      total += term(width<1>{}, i, packed);
    total = block_sum(t, total, t.shared<double>(block_warps));
    if (t.index() == 0)
      partial.store(t.block(), total);
  }
};

struct final_sum {
  view<const double> partial; // (blocks of the first stage)
  double factor;
  view<double> exact;
  view<float> rounded;

  TROUPE_DEVICE void operator()(const thread& t) const {
    double total = 0;
    for (std::size_t i = t.index(); i < partial.size; i += block_threads)
      total += partial.load(i);
    total = factor * block_sum(t, total, t.shared<double>(block_warps));
    if (t.index() != 0)
      return;
    if (exact.data != nullptr)
      exact.store(0, total);
    if (rounded.data != nullptr)
      rounded.store(0, static_cast<float>(total));
  }
};

constexpr std::size_t sum_shared = block_warps * sizeof(double);

template <class Term>
void sum_terms(stream where, const char* name, std::size_t n, const Term& term, double factor,
               double* space, scalar_result out) {
  const auto blocks = std::min(blocks_for(n, std::size_t{pack_width} * block_threads), sum_blocks);
  launch(where, name, {blocks, sum_shared},
         partial_sum<Term>{term, n, term.packs(), {space, blocks}});
  launch(where, "final_sum", {1, sum_shared},
         final_sum{{space, blocks}, factor, {out.exact, 1}, {out.rounded, 1}});
}

template <class In>
struct element_term {
  In x;
  bool packs() const { return address_of(x).packs(); }
  template <unsigned W>
  TROUPE_DEVICE double operator()(width<W> n, std::size_t i, bool packed) const {
    const auto v = load_doubles(n, x, i, packed);
    double total = 0;
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k)
      total += v.x[k];
    return total;
  }
};

struct squared_difference_term {
  view<const float> a, b;
  bool packs() const { return address_of(a).packs() && address_of(b).packs(); }
  template <unsigned W>
  TROUPE_DEVICE double operator()(width<W> n, std::size_t i, bool packed) const {
    const auto x = load_doubles(n, a, i, packed);
    const auto y = load_doubles(n, b, i, packed);
    double total = 0;
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k) {
      const auto d = x.x[k] - y.x[k];
      total += d * d;
    }
    return total;
  }
};

struct square_term {
  view<const float> x;
  bool packs() const { return address_of(x).packs(); }
  template <unsigned W>
  TROUPE_DEVICE double operator()(width<W> n, std::size_t i, bool packed) const {
    const auto v = load_doubles(n, x, i, packed);
    double total = 0;
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k)
      total += v.x[k] * v.x[k];
    return total;
  }
};

struct binary_correct_term {
  view<const float> logits;
  view<const std::int32_t> labels;
  bool packs() const { return address_of(logits).packs(); }
  template <unsigned W>
  TROUPE_DEVICE double operator()(width<W> n, std::size_t i, bool packed) const {
    const auto z = load_doubles(n, logits, i, packed);
    double total = 0;
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k) {
      const auto label = labels.load(i + k);
      total += (label == 1 && z.x[k] > 0) || (label == 0 && z.x[k] <= 0) ? 1 : 0;
    }
    return total;
  }
};

/// Adds up a few short vectors. Each block adds up one vector.
struct sums_kernel {
  view<const double> x; // (number of sums, n)
  std::size_t n;
  double factors[most_row_sums];
  view<double> exact[most_row_sums];
  view<float> rounded[most_row_sums];

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto s = t.block(); s < x.size / n; s += t.blocks()) {
      double total = 0;
      for (std::size_t i = t.index(); i < n; i += block_threads)
        total += x.load(s * n + i);
      total = factors[s] * block_sum(t, total, t.shared<double>(block_warps));
      if (t.index() != 0)
        continue;
      if (exact[s].data != nullptr)
        exact[s].store(0, total);
      if (rounded[s].data != nullptr)
        rounded[s].store(0, static_cast<float>(total));
    }
  }
};

/// A block adds up a part of the rows, for `warp_threads * W` columns. Each thread adds up W
/// columns. The threads of a warp read neighbouring elements.
template <unsigned W, class In>
struct leading_sum {
  static constexpr std::size_t tile = std::size_t{warp_threads} * W;
  static constexpr std::size_t shared_bytes = std::size_t{block_threads} * W * sizeof(double);
  In x;                 // (rows, columns)
  view<double> partial; // (parts, columns)
  std::size_t rows, columns, parts;
  bool packed;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<double>(std::size_t{block_threads} * W);
    const auto tiles = (columns + tile - 1) / tile;
    for (auto task = t.block(); task < tiles * parts; task += t.blocks()) {
      const auto column = task % tiles * tile + t.lane() * W;
      const auto part = task / tiles;
      const auto end = rows * (part + 1) / parts;
      double total[W] = {};
      if (column < columns)
        for (auto r = rows * part / parts + t.warp(); r < end; r += block_warps) {
          const auto v = load_doubles(width<W>{}, x, r * columns + column, packed);
          TROUPE_UNROLL
          for (unsigned k = 0; k < W; ++k)
            total[k] += v.x[k];
        }
      TROUPE_UNROLL
      for (unsigned k = 0; k < W; ++k)
        space.store(k * block_threads + t.index(), total[k]);
      t.barrier();
      if (t.warp() == 0 && column < columns) {
        TROUPE_UNROLL
        for (unsigned k = 0; k < W; ++k) {
          for (unsigned w = 1; w < block_warps; ++w)
            total[k] += space.load(k * block_threads + w * warp_threads + t.lane());
          partial.store(part * columns + column + k, total[k]);
        }
      }
      t.barrier();
    }
  }
};

/// A block adds up the parts of warp_threads columns. Each warp adds up some of the parts.
struct parts_sum {
  view<const double> partial; // (parts, columns)
  view<float> out;            // (columns)
  std::size_t parts;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<double>(block_threads);
    for (auto first = t.block() * warp_threads; first < out.size;
         first += t.blocks() * warp_threads) {
      const auto j = first + t.lane();
      double total = 0;
      if (j < out.size)
        for (std::size_t part = t.warp(); part < parts; part += block_warps)
          total += partial.load(part * out.size + j);
      space.store(t.index(), total);
      t.barrier();
      if (t.warp() == 0 && j < out.size) {
        for (unsigned w = 1; w < block_warps; ++w)
          total += space.load(w * warp_threads + t.lane());
        out.store(j, static_cast<float>(total));
      }
      t.barrier();
    }
  }
};

/// A warp adds up a row at a time.
template <class In>
struct last_sum {
  In x;            // (rows, columns)
  view<float> out; // (rows)
  std::size_t columns;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto r = t.first_warp(); r < out.size; r += t.warp_stride()) {
      double total = 0;
      for (std::size_t j = t.lane(); j < columns; j += warp_threads)
        total += static_cast<double>(x.load(r * columns + j));
      total = warp_sum(t, total);
      if (t.lane() == 0)
        out.store(r, static_cast<float>(total));
    }
  }
};

template <class In>
struct channel_terms {
  static constexpr unsigned sums = 1;
  In x; // (count, channels, pixels)

  bool packs() const { return address_of(x).packs(); }
  template <unsigned W>
  TROUPE_DEVICE void add(width<W> n, std::size_t, std::size_t i, bool packed,
                         double (&totals)[1]) const {
    const auto v = load_doubles(n, x, i, packed);
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k)
      totals[0] += v.x[k];
  }
};

struct rounded_totals {
  view<float> out; // (channels)

  TROUPE_DEVICE void store(std::size_t c, const double (&totals)[1]) const {
    out.store(c, static_cast<float>(totals[0]));
  }
};

} // namespace

void sum(stream where, std::size_t n, mixed_input x, double factor, double* space,
         scalar_result out) {
  with_view({x, n}, [&](auto from) {
    sum_terms(where, "sum", n, element_term<decltype(from)>{from}, factor, space, out);
  });
}

void sum(stream where, std::size_t n, const double* x, double factor, double* space,
         scalar_result out) {
  sum_terms(where, "sum", n, element_term<view<const double>>{{x, n}}, factor, space, out);
}

void squared_error(stream where, std::size_t n, const float* a, const float* b, double factor,
                   double* space, scalar_result out) {
  sum_terms(where, "squared_error", n, squared_difference_term{{a, n}, {b, n}}, factor, space, out);
}

void sum_of_squares(stream where, std::size_t n, const float* x, double* space, scalar_result out) {
  sum_terms(where, "sum_of_squares", n, square_term{{x, n}}, 1, space, out);
}

void binary_correct(stream where, std::size_t n, const float* logits, const std::int32_t* labels,
                    double* space, scalar_result out) {
  sum_terms(where, "binary_correct", n, binary_correct_term{{logits, n}, {labels, n}}, 1, space,
            out);
}

void sum_rows(stream where, std::size_t n, const double* x, std::span<const sum_of_rows> all,
              double* space) {
  // A longer vector needs more than one block, so it is added up by its own launches.
  constexpr std::size_t longest = 8192;
  if (n == 0 || n > longest || all.size() > most_row_sums) {
    for (const auto& one : all) {
      sum(where, n, x, one.factor, space, one.out);
      x += n;
    }
    return;
  }
  sums_kernel kernel{{x, all.size() * n}, n, {}, {}, {}};
  for (std::size_t s = 0; s < all.size(); ++s) {
    kernel.factors[s] = all[s].factor;
    kernel.exact[s] = {all[s].out.exact, 1};
    kernel.rounded[s] = {all[s].out.rounded, 1};
  }
  launch(where, "sum_rows", {blocks_for(all.size(), 1), sum_shared}, kernel);
}

namespace {

/// Number of neighbouring columns that a thread of leading_sum adds up.
unsigned columns_per_thread(std::size_t columns) noexcept {
  return columns % pack_width == 0 ? pack_width : 1;
}

std::size_t column_tiles(std::size_t columns) noexcept {
  const auto tile = std::size_t{warp_threads} * columns_per_thread(columns);
  return std::max<std::size_t>((columns + tile - 1) / tile, 1);
}

} // namespace

std::size_t row_parts(std::size_t rows, std::size_t columns) noexcept {
  // There are enough parts to use all of a large GPU. If there are few rows, there are fewer parts,
  // so that each part has at least 64 rows.
  const auto tiles = column_tiles(columns);
  return std::clamp<std::size_t>(rows / 64, 1, std::max<std::size_t>(512 / tiles, 1));
}

void add_parts(stream where, std::size_t parts, std::size_t n, const double* x, float* out) {
  launch(where, "add_parts", {blocks_for(n, warp_threads), block_threads * sizeof(double)},
         parts_sum{{x, parts * n}, {out, n}, parts});
}

void sum_leading(stream where, std::size_t rows, std::size_t columns, mixed_input x, double* space,
                 float* out) {
  const auto parts = row_parts(rows, columns);
  with_view({x, rows * columns}, [&](auto from) {
    const auto launch_with = [&]<unsigned W>(width<W>) {
      using kernel = leading_sum<W, decltype(from)>;
      launch(
        where, "leading_sum", {blocks_for(column_tiles(columns) * parts, 1), kernel::shared_bytes},
        kernel{from, {space, parts * columns}, rows, columns, parts, address_of(from).packs()});
    };
    if (columns_per_thread(columns) == pack_width)
      launch_with(width<pack_width>{});
    else
      launch_with(width<1>{});
  });
  add_parts(where, parts, columns, space, out);
}

void sum_last(stream where, std::size_t rows, std::size_t columns, mixed_input x, float* out) {
  with_view({x, rows * columns}, [&](auto from) {
    launch(where, "last_sum", {blocks_for(rows, block_warps)},
           last_sum<decltype(from)>{from, {out, rows}, columns});
  });
}

std::size_t channel_parts(const channel_sizes& size) noexcept {
  // There are enough parts to use all of a large GPU. If a channel has few elements, there are
  // fewer parts, so that each part has at least 4096 elements.
  return std::clamp<std::size_t>(
    size.count * size.pixels / 4096, 1,
    std::max<std::size_t>(512 / std::max<std::size_t>(size.channels, 1), 1));
}

void sum_channels(stream where, const channel_sizes& size, mixed_input x, double* space,
                  float* out) {
  with_view({x, size.count * size.channels * size.pixels}, [&](auto from) {
    sum_by_channel(where, "sum_channels", size, channel_terms<decltype(from)>{from}, space,
                   rounded_totals{{out, size.channels}});
  });
}

} // namespace troupe::cuda
