#include "kernels/cuda/normalization.hpp"

#include "kernels/cuda/channel_sums.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/rows.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <type_traits>

namespace troupe::cuda {

namespace {

/// True if the terms of a pack are added up in float32, and only these sums in double. Elements of
/// 16 bits have so few bits that such a sum is exact, or nearly. For them, the conversions to
/// double would limit the speed.
template <class In>
inline constexpr bool adds_packs_in_float = !std::is_same_v<In, view<const float>>;

/// The mean of a row of n columns.
template <class In, class Row>
TROUPE_DEVICE double mean_of(const typename Row::team& own, Row& x, double n) {
  if constexpr (adds_packs_in_float<In>)
    return own.sum(x.sum([](unsigned, float v) { return v; })) / n;
  double sum = 0;
  // The factor does not change the result, because the product is exact. Without it, the compiler
  // would keep the values, converted to double, until a later loop. This would take too many
  // registers.
  x.visit([&](unsigned, float v) { sum += static_cast<double>(0.25F * v); });
  return 4 * own.sum(sum) / n;
}

/// 1 / sqrt(variance + epsilon), from the sum of the squared distances from the mean.
TROUPE_DEVICE double scale_of(double squares, double n, double epsilon) {
  return 1 / std::sqrt(squares / n + epsilon);
}

template <class Columns, class In, class Out>
struct rows_kernel {
  static constexpr unsigned blocks_at_once = Columns::blocks_at_once;
  In x;    // (rows, columns)
  Out out; // (rows, columns)
  Columns columns;
  std::size_t rows;
  double epsilon;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto n = static_cast<double>(columns.count);
    const typename Columns::team own{t};
    for (auto r = own.first(); r < rows; r += own.stride()) {
      row_values values(own, columns, x, r * columns.count);
      const auto exact_mean = mean_of<In>(own, values, n);
      const auto mean = static_cast<float>(exact_mean);
      double squares = 0;
      if constexpr (adds_packs_in_float<In>)
        squares = values.sum_present([&](float v) { return (v - mean) * (v - mean); });
      else
        values.visit_present([&](bool present, float v) {
          const auto d = present ? static_cast<double>(v) - exact_mean : 0;
          squares = std::fma(d, d, squares);
        });
      const auto scale = static_cast<float>(scale_of(own.sum(squares), n, epsilon));
      values.write(out, [&](unsigned, float v) { return (v - mean) * scale; });
    }
  }
};

/// dx = scale (dy - mean(dy) - y mean(dy y)), where y = (x - mean) scale.
template <class Columns, class In, class Out>
struct rows_gradient_kernel {
  static constexpr unsigned blocks_at_once = 2; // two rows are in registers
  In dy, x;                                     // (rows, columns)
  Out out;                                      // (rows, columns)
  Columns columns;
  std::size_t rows;
  double epsilon;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto n = static_cast<double>(columns.count);
    const typename Columns::team own{t};
    for (auto r = own.first(); r < rows; r += own.stride()) {
      row_values values(own, columns, x, r * columns.count);
      row_values gradients(own, columns, dy, r * columns.count);
      const auto exact_mean = mean_of<In>(own, values, n);
      const auto mean = static_cast<float>(exact_mean);
      double totals[2] = {}; // of the squares of x - mean, and of dy (x - mean)
      if constexpr (adds_packs_in_float<In>)
        gradients.sum_present_with(values, totals, [&](float g, float v, float(&terms)[2]) {
          terms[0] = (v - mean) * (v - mean);
          terms[1] = g * (v - mean);
        });
      else
        gradients.visit_present_with(values, [&](bool present, float g, float v) {
          const auto d = present ? static_cast<double>(v) - exact_mean : 0;
          totals[0] = std::fma(d, d, totals[0]);
          totals[1] = std::fma(static_cast<double>(g), d, totals[1]);
        });
      const auto exact_scale = scale_of(own.sum(totals[0]), n, epsilon);
      const auto sum = gradients.sum([](unsigned, float g) { return g; });
      const auto scale = static_cast<float>(exact_scale);
      const auto g_mean = static_cast<float>(own.sum(sum) / n);
      const auto y_mean = static_cast<float>(exact_scale * own.sum(totals[1]) / n);
      gradients.write_with(values, out, [&](float g, float v) {
        return scale * (g - g_mean - (v - mean) * scale * y_mean);
      });
    }
  }
};

// -- channels

template <class In>
struct square_terms {
  static constexpr unsigned sums = 2;
  In x; // (count, channels, pixels)

  bool packs() const { return address_of(x).packs(); }
  template <unsigned W>
  TROUPE_DEVICE void add(width<W> n, std::size_t, std::size_t i, bool packed,
                         double (&totals)[2]) const {
    const auto v = load_doubles(n, x, i, packed);
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k) {
      totals[0] += v.x[k];
      totals[1] += v.x[k] * v.x[k];
    }
  }
};

/// The terms of the sum of dy and of the sum of dy (x - mean).
template <class In>
struct product_terms {
  static constexpr unsigned sums = 2;
  In dy, x;                  // (count, channels, pixels)
  view<const float> moments; // (2, channels)

  bool packs() const { return address_of(dy).packs() && address_of(x).packs(); }
  template <unsigned W>
  TROUPE_DEVICE void add(width<W> n, std::size_t c, std::size_t i, bool packed,
                         double (&totals)[2]) const {
    const auto g = load_doubles(n, dy, i, packed);
    const auto v = load_doubles(n, x, i, packed);
    const auto mean = static_cast<double>(moments.load(c));
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k) {
      totals[0] += g.x[k];
      totals[1] += g.x[k] * (v.x[k] - mean);
    }
  }
};

struct exact_totals {
  view<double> out; // (2, channels)

  TROUPE_DEVICE void store(std::size_t c, const double (&totals)[2]) const {
    out.store(c, totals[0]);
    out.store(out.size / 2 + c, totals[1]);
  }
};

/// The mean and the variance, from the sum and the sum of squares of n elements.
struct moments_of_totals {
  view<float> out; // (2, channels)
  double n;

  TROUPE_DEVICE void store(std::size_t c, const double (&totals)[2]) const {
    const auto mean = totals[0] / n;
    const auto variance = totals[1] / n - mean * mean;
    out.store(c, static_cast<float>(mean));
    out.store(out.size / 2 + c, static_cast<float>(variance < 0 ? 0 : variance)); // NaN stays NaN
  }
};

/// The loop of an element-wise kernel over images. It also has the moments (means and variances) of
/// the channels.
class channel_loop {
public:
  channel_loop(const channel_sizes& size, const float* moments, double epsilon,
               std::initializer_list<element_address> addresses)
    : all_(elements(size), addresses), pixels_(size.pixels, elements(size)),
      channels_(size.channels, elements(size)), moments_{moments, 2 * size.channels},
      epsilon_(std::max(static_cast<float>(epsilon), std::numeric_limits<float>::min())) {
    if (size.pixels % pack_width != 0)
      all_.one_by_one();
  }

  std::size_t blocks() const { return all_.blocks(); }
  static std::size_t elements(const channel_sizes& size) {
    return size.count * size.channels * size.pixels;
  }
  /// Calls f(width<W>, i, c) for elements [i, i + W), which belong to channel c.
  template <class F>
  TROUPE_DEVICE void visit(const thread& t, F f) const {
    all_.visit(t, [&]<unsigned W>(width<W> n, std::size_t i) {
      f(n, i, channels_(pixels_.quotient(i)).rest);
    });
  }
  TROUPE_DEVICE float mean(std::size_t c) const { return moments_.load(c); }
  /// 1 / sqrt(variance + epsilon). It is computed in float32: each pack computes it again, and a
  /// root in double takes much longer on some GPUs.
  TROUPE_DEVICE float scale(std::size_t c) const {
    return 1 / std::sqrt(moments_.load(moments_.size / 2 + c) + epsilon_);
  }

private:
  element_loop all_;
  divider pixels_, channels_;
  view<const float> moments_; // (2, channels)
  float epsilon_;             // never 0, so that a scale is finite
};

template <class In, class Out>
struct channels_kernel {
  channel_loop all;
  In x;
  Out out;

  TROUPE_DEVICE void operator()(const thread& t) const {
    all.visit(t, [&]<unsigned W>(width<W> n, std::size_t i, std::size_t c) {
      auto y = load_floats(n, x, i);
      const auto mean = all.mean(c);
      const auto scale = all.scale(c);
      TROUPE_UNROLL
      for (unsigned k = 0; k < W; ++k)
        y.x[k] = (y.x[k] - mean) * scale;
      store_floats(out, i, y);
    });
  }
};

/// dx = scale (dy - mean(dy) - (x - mean) scale^2 mean(dy (x - mean))), where scale = 1 /
/// sqrt(variance + epsilon).
template <class In, class Out>
struct channels_gradient_kernel {
  channel_loop all;
  In dy, x;
  view<const double> totals; // (2, channels)
  Out out;
  double share; // 1 / the number of elements of a channel

  TROUPE_DEVICE void operator()(const thread& t) const {
    all.visit(t, [&]<unsigned W>(width<W> n, std::size_t i, std::size_t c) {
      const auto stored_dy = load_stored(n, dy, i);
      const auto stored_x = load_stored(n, x, i);
      const auto mean = all.mean(c);
      const auto scale = all.scale(c);
      const auto exact = static_cast<double>(scale);
      const auto dy_mean = static_cast<float>(share * totals.load(c));
      const auto slope =
        static_cast<float>(exact * exact * share * totals.load(totals.size / 2 + c));
      const auto v = floats_of(stored_x);
      auto g = floats_of(stored_dy);
      TROUPE_UNROLL
      for (unsigned k = 0; k < W; ++k)
        g.x[k] = scale * (g.x[k] - dy_mean - (v.x[k] - mean) * slope);
      store_floats(out, i, g);
    });
  }
};

double at_least_one(std::size_t n) {
  return static_cast<double>(std::max<std::size_t>(n, 1));
}

} // namespace

void normalize_rows(stream where, std::size_t rows, std::size_t columns, mixed_input x,
                    double epsilon, mixed_output out) {
  const auto n = rows * columns;
  with_views(
    out, n,
    [&](auto to, auto from) {
      with_row_columns(columns, {address_of(from), address_of(to)}, [&](auto how) {
        launch_rows(where, "normalize_rows", rows, how, rows_kernel{from, to, how, rows, epsilon});
      });
    },
    read_elements{x, n});
}

void normalize_rows_gradient(stream where, std::size_t rows, std::size_t columns, mixed_input dy,
                             mixed_input x, double epsilon, mixed_output out) {
  const auto n = rows * columns;
  with_views(
    out, n,
    [&](auto to, auto gradient, auto from) {
      with_row_columns(columns, {address_of(gradient), address_of(from), address_of(to)},
                       [&](auto how) {
                         launch_rows(where, "normalize_rows_gradient", rows, how,
                                     rows_gradient_kernel{gradient, from, to, how, rows, epsilon});
                       });
    },
    read_elements{dy, n}, read_elements{x, n});
}

std::size_t channel_space(const channel_sizes& size) noexcept {
  return 2 * size.channels * (channel_parts(size) + 1); // the parts, and the totals of a gradient
}

void channel_moments(stream where, const channel_sizes& size, mixed_input x, double* space,
                     float* out) {
  with_view({x, channel_loop::elements(size)}, [&](auto from) {
    sum_by_channel(
      where, "channel_moments", size, square_terms<decltype(from)>{from}, space,
      moments_of_totals{{out, 2 * size.channels}, at_least_one(size.count * size.pixels)});
  });
}

void normalize_channels(stream where, const channel_sizes& size, mixed_input x,
                        const float* moments, double epsilon, mixed_output out) {
  const auto n = channel_loop::elements(size);
  with_views(
    out, n,
    [&](auto to, auto from) {
      const channel_loop all(size, moments, epsilon, {address_of(from), address_of(to)});
      launch(where, "normalize_channels", {all.blocks()}, channels_kernel{all, from, to});
    },
    read_elements{x, n});
}

void normalize_channels_gradient(stream where, const channel_sizes& size, mixed_input dy,
                                 mixed_input x, const float* moments, double epsilon,
                                 const channel_totals& totals, double* space, mixed_output out) {
  const auto n = channel_loop::elements(size);
  auto all_workers = totals;
  if (totals.sums == nullptr) {
    const auto own = space + channel_space(size) - 2 * size.channels;
    channel_products(where, size, dy, x, moments, space, own);
    all_workers = {own, size.count * size.pixels};
  }
  with_views(
    out, n,
    [&](auto to, auto gradient, auto from) {
      const channel_loop all(size, moments, epsilon,
                             {address_of(gradient), address_of(from), address_of(to)});
      launch(where, "normalize_channels_gradient", {all.blocks()},
             channels_gradient_kernel{all, gradient, from,
                                      view<const double>{all_workers.sums, 2 * size.channels}, to,
                                      1 / at_least_one(all_workers.each)});
    },
    read_elements{dy, n}, read_elements{x, n});
}

void channel_sums(stream where, const channel_sizes& size, mixed_input x, double* space,
                  double* out) {
  with_view({x, channel_loop::elements(size)}, [&](auto from) {
    sum_by_channel(where, "channel_sums", size, square_terms<decltype(from)>{from}, space,
                   exact_totals{{out, 2 * size.channels}});
  });
}

void moments_of_sums(stream where, std::size_t channels, const channel_totals& totals, float* out) {
  add_channel_parts<2>(where, "moments_of_sums", channels, 1, totals.sums,
                       moments_of_totals{{out, 2 * channels}, at_least_one(totals.each)});
}

void channel_products(stream where, const channel_sizes& size, mixed_input dy, mixed_input x,
                      const float* moments, double* space, double* out) {
  const auto n = channel_loop::elements(size);
  with_views(
    mixed_output{nullptr, dy.type}, 0,
    [&](auto, auto gradient, auto from) {
      sum_by_channel(where, "channel_products", size,
                     product_terms<decltype(from)>{gradient, from, {moments, 2 * size.channels}},
                     space, exact_totals{{out, 2 * size.channels}});
    },
    read_elements{dy, n}, read_elements{x, n});
}

} // namespace troupe::cuda
