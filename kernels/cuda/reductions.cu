#include "kernels/cuda/reductions.hpp"

#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

namespace troupe::cuda {

namespace {

// A sum has two stages (Harris 2007, "Optimizing parallel reduction in CUDA"): each block adds up a
// part of the elements, and then one block adds up the results of all blocks.

constexpr std::size_t sum_blocks = sum_space / 2;

/// A Term has `double operator()(std::size_t i) const`, which returns term number i.
template <class Term>
struct partial_sum {
  Term term;
  std::size_t n;
  view<double> partial; // (blocks)

  TROUPE_DEVICE void operator()(const thread& t) const {
    double total = 0;
    for (auto i = t.first(); i < n; i += t.stride())
      total += term(i);
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
  const auto blocks = std::min(blocks_for(n, std::size_t{4} * block_threads), sum_blocks);
  launch(where, name, {blocks, sum_shared}, partial_sum<Term>{term, n, {space, blocks}});
  launch(where, "final_sum", {1, sum_shared},
         final_sum{{space, blocks}, factor, {out.exact, 1}, {out.rounded, 1}});
}

template <class In>
struct element_term {
  In x;
  TROUPE_DEVICE double operator()(std::size_t i) const { return static_cast<double>(x.load(i)); }
};

struct squared_difference_term {
  view<const float> a, b;
  TROUPE_DEVICE double operator()(std::size_t i) const {
    const auto d = static_cast<double>(a.load(i)) - static_cast<double>(b.load(i));
    return d * d;
  }
};

struct square_term {
  view<const float> x;
  TROUPE_DEVICE double operator()(std::size_t i) const {
    const auto y = static_cast<double>(x.load(i));
    return y * y;
  }
};

struct binary_correct_term {
  view<const float> logits;
  view<const std::int32_t> labels;
  TROUPE_DEVICE double operator()(std::size_t i) const {
    const auto label = labels.load(i);
    const auto z = logits.load(i);
    return (label == 1 && z > 0) || (label == 0 && z <= 0) ? 1 : 0;
  }
};

/// A block adds up a part of the rows, for warp_threads columns. The threads of a warp read
/// neighbouring elements.
template <class In>
struct leading_sum {
  In x;                 // (rows, columns)
  view<double> partial; // (parts, columns)
  std::size_t rows, columns, parts;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<double>(block_threads);
    const auto tiles = (columns + warp_threads - 1) / warp_threads;
    for (auto task = t.block(); task < tiles * parts; task += t.blocks()) {
      const auto column = task % tiles * warp_threads + t.lane();
      const auto part = task / tiles;
      const auto end = rows * (part + 1) / parts;
      double total = 0;
      if (column < columns)
        for (auto r = rows * part / parts + t.warp(); r < end; r += block_warps)
          total += static_cast<double>(x.load(r * columns + column));
      space.store(t.index(), total);
      t.barrier();
      if (t.warp() == 0 && column < columns) {
        for (unsigned w = 1; w < block_warps; ++w)
          total += space.load(w * warp_threads + t.lane());
        partial.store(part * columns + column, total);
      }
      t.barrier();
    }
  }
};

struct parts_sum {
  view<const double> partial; // (parts, columns)
  view<float> out;            // (columns)
  std::size_t parts;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto j = t.first(); j < out.size; j += t.stride()) {
      double total = 0;
      for (std::size_t part = 0; part < parts; ++part)
        total += partial.load(part * out.size + j);
      out.store(j, static_cast<float>(total));
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

/// A block adds up a channel at a time.
template <class In>
struct channel_sum {
  In x;             // (count, channels, pixels)
  view<float> out;  // (channels)
  std::size_t each; // count times pixels
  divider pixels;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<double>(block_warps);
    for (auto c = t.block(); c < out.size; c += t.blocks()) {
      double total = 0;
      for (std::size_t i = t.index(); i < each; i += block_threads) {
        const auto [image, pixel] = pixels(i);
        total += static_cast<double>(x.load((image * out.size + c) * pixels.divisor() + pixel));
      }
      total = block_sum(t, total, space);
      if (t.index() == 0)
        out.store(c, static_cast<float>(total));
    }
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

std::size_t row_parts(std::size_t rows, std::size_t columns) noexcept {
  // The number of blocks is large enough for a large GPU, and each part has at least 64 rows.
  const auto tiles = std::max<std::size_t>((columns + warp_threads - 1) / warp_threads, 1);
  return std::clamp<std::size_t>(rows / 64, 1, std::max<std::size_t>(512 / tiles, 1));
}

void add_parts(stream where, std::size_t parts, std::size_t n, const double* x, float* out) {
  launch(where, "add_parts", {blocks_for(n)}, parts_sum{{x, parts * n}, {out, n}, parts});
}

void sum_leading(stream where, std::size_t rows, std::size_t columns, mixed_input x, double* space,
                 float* out) {
  const auto parts = row_parts(rows, columns);
  const auto tasks = (columns + warp_threads - 1) / warp_threads * parts;
  with_view({x, rows * columns}, [&](auto from) {
    launch(where, "leading_sum", {blocks_for(tasks, 1), block_threads * sizeof(double)},
           leading_sum<decltype(from)>{from, {space, parts * columns}, rows, columns, parts});
  });
  add_parts(where, parts, columns, space, out);
}

void sum_last(stream where, std::size_t rows, std::size_t columns, mixed_input x, float* out) {
  with_view({x, rows * columns}, [&](auto from) {
    launch(where, "last_sum", {blocks_for(rows, block_warps)},
           last_sum<decltype(from)>{from, {out, rows}, columns});
  });
}

void sum_channels(stream where, std::size_t count, std::size_t channels, std::size_t pixels,
                  mixed_input x, float* out) {
  with_view({x, count * channels * pixels}, [&](auto from) {
    launch(
      where, "channel_sum", {blocks_for(channels, 1), sum_shared},
      channel_sum<decltype(from)>{from, {out, channels}, count * pixels, {pixels, count * pixels}});
  });
}

} // namespace troupe::cuda
