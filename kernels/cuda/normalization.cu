#include "kernels/cuda/normalization.hpp"

#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"
#include "kernels/cuda/rows.hpp"

#include <cmath>

namespace troupe::cuda {

namespace {

/// The mean of a row of n columns.
template <class Row>
TROUPE_DEVICE double mean_of(const typename Row::team& own, Row& x, double n) {
  double sum = 0;
  // Without the factor, the compiler would keep the values in double for later, in too many
  // registers. The product is exact.
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
      const auto exact_mean = mean_of(own, values, n);
      double squares = 0;
      values.visit_present([&](bool present, float v) {
        const auto d = present ? static_cast<double>(v) - exact_mean : 0;
        squares = std::fma(d, d, squares);
      });
      const auto mean = static_cast<float>(exact_mean);
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
      const auto exact_mean = mean_of(own, values, n);
      double squares = 0;
      double products = 0;
      gradients.visit_present_with(values, [&](bool present, float g, float v) {
        const auto d = present ? static_cast<double>(v) - exact_mean : 0;
        squares = std::fma(d, d, squares);
        products = std::fma(static_cast<double>(g), d, products);
      });
      const auto exact_scale = scale_of(own.sum(squares), n, epsilon);
      const auto sum = gradients.sum([](unsigned, float g) { return g; });
      const auto mean = static_cast<float>(exact_mean);
      const auto scale = static_cast<float>(exact_scale);
      const auto g_mean = static_cast<float>(own.sum(sum) / n);
      const auto y_mean = static_cast<float>(exact_scale * own.sum(products) / n);
      gradients.write_with(values, out, [&](float g, float v) {
        return scale * (g - g_mean - (v - mean) * scale * y_mean);
      });
    }
  }
};

// -- channels: a block handles a channel at a time; each thread reads and writes only its own
// elements

struct channel_loop {
  channel_sizes size;

  TROUPE_DEVICE std::size_t each() const { return size.count * size.pixels; }
  /// Calls f(i) for each element i of channel c that belongs to this thread, in ascending order.
  template <class F>
  TROUPE_DEVICE void visit(const thread& t, std::size_t c, F f) const {
    // The loop avoids a division for each element, because there are not enough registers for it.
    const auto pixels = size.pixels > 0 ? size.pixels : 1;
    const auto count = size.pixels > 0 ? size.count : 0;
    const auto images_per_step = block_threads / pixels;
    const auto pixels_per_step = block_threads % pixels;
    auto pixel = t.index() % pixels;
    for (auto image = t.index() / pixels; image < count; image += images_per_step) {
      f((image * size.channels + c) * pixels + pixel);
      pixel += pixels_per_step;
      if (pixel >= pixels) {
        pixel -= pixels;
        ++image;
      }
    }
  }
  template <class F>
  TROUPE_DEVICE double sum(const thread& t, std::size_t c, F f) const {
    double total = 0;
    visit(t, c, [&](std::size_t i) { total += f(i); });
    return block_sum(t, total, t.shared<double>(block_warps));
  }
};

TROUPE_DEVICE float channel_scale(float variance, double epsilon) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(variance) + epsilon));
}

template <class In>
struct moments_kernel {
  channel_loop all;
  In x;
  view<float> out; // (2, channels)

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto n = static_cast<double>(all.each() > 0 ? all.each() : 1);
    for (auto c = t.block(); c < all.size.channels; c += t.blocks()) {
      const auto mean =
        all.sum(t, c, [&](std::size_t i) { return static_cast<double>(x.load(i)); }) / n;
      const auto squares = all.sum(t, c, [&](std::size_t i) {
        const auto d = static_cast<double>(x.load(i)) - mean;
        return d * d;
      });
      if (t.index() == 0) {
        out.store(c, static_cast<float>(mean));
        out.store(all.size.channels + c, static_cast<float>(squares / n));
      }
    }
  }
};

template <class In, class Out>
struct channels_kernel {
  channel_loop all;
  In x;
  view<const float> moments; // (2, channels)
  Out out;
  double epsilon;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto c = t.block(); c < all.size.channels; c += t.blocks()) {
      const auto mean = moments.load(c);
      const auto scale = channel_scale(moments.load(all.size.channels + c), epsilon);
      all.visit(t, c, [&](std::size_t i) { out.store(i, (x.load(i) - mean) * scale); });
    }
  }
};

/// Two sums over channel c, in one pass.
struct two_sums {
  double first, second;

  /// f(i, a, b) adds the terms of element i to a and b.
  template <class F>
  TROUPE_DEVICE static two_sums of(const thread& t, const channel_loop& all, std::size_t c, F f) {
    double a = 0;
    double b = 0;
    all.visit(t, c, [&](std::size_t i) { f(i, a, b); });
    const auto space = t.shared<double>(block_warps);
    a = block_sum(t, a, space);
    b = block_sum(t, b, space);
    return {a, b};
  }

  /// Writes the sums of channel c to out (2, channels).
  TROUPE_DEVICE void store(const thread& t, const view<double>& out, std::size_t c,
                           std::size_t channels) const {
    if (t.index() == 0) {
      out.store(c, first);
      out.store(channels + c, second);
    }
  }
};

template <class In>
struct sums_kernel {
  channel_loop all;
  In x;
  view<double> out; // (2, channels)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto c = t.block(); c < all.size.channels; c += t.blocks())
      two_sums::of(t, all, c, [&](std::size_t i, double& sum, double& squares) {
        const auto v = static_cast<double>(x.load(i));
        sum += v;
        squares += v * v;
      }).store(t, out, c, all.size.channels);
  }
};

struct moments_of_sums_kernel {
  view<const double> sums; // (2, channels)
  view<float> out;         // (2, channels)
  std::size_t channels;
  double n;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto c = t.first(); c < channels; c += t.stride()) {
      const auto mean = sums.load(c) / n;
      const auto variance = sums.load(channels + c) / n - mean * mean;
      out.store(c, static_cast<float>(mean));
      out.store(channels + c, static_cast<float>(variance < 0 ? 0 : variance)); // NaN stays NaN
    }
  }
};

/// The sum of dy and the sum of dy (x - mean) of channel c.
template <class In>
TROUPE_DEVICE two_sums product_sums(const thread& t, const channel_loop& all, std::size_t c,
                                    const In& dy, const In& x, float mean) {
  return two_sums::of(t, all, c, [&](std::size_t i, double& sum, double& products) {
    const auto v = static_cast<double>(dy.load(i));
    sum += v;
    products += v * static_cast<double>(x.load(i) - mean);
  });
}

template <class In>
struct products_kernel {
  channel_loop all;
  In dy, x;
  view<const float> moments; // (2, channels)
  view<double> out;          // (2, channels)

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto c = t.block(); c < all.size.channels; c += t.blocks())
      product_sums(t, all, c, dy, x, moments.load(c)).store(t, out, c, all.size.channels);
  }
};

/// dx = scale (dy - mean(dy) - (x - mean) scale^2 mean(dy (x - mean))), where scale = 1 /
/// sqrt(variance + epsilon).
template <class In, class Out>
struct channels_gradient_kernel {
  channel_loop all;
  In dy, x;
  view<const float> moments; // (2, channels)
  view<const double> totals; // (2, channels); if null, those of these images
  Out out;
  double epsilon, n;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto c = t.block(); c < all.size.channels; c += t.blocks()) {
      const auto mean = moments.load(c);
      const auto scale = channel_scale(moments.load(all.size.channels + c), epsilon);
      const auto [sum, product] = totals.data != nullptr
        ? two_sums{totals.load(c), totals.load(all.size.channels + c)}
        : product_sums(t, all, c, dy, x, mean);
      const auto exact = static_cast<double>(scale);
      const auto dy_mean = static_cast<float>(sum / n);
      const auto slope = static_cast<float>(exact * exact * product / n);
      all.visit(t, c, [&](std::size_t i) {
        const auto centered = x.load(i) - mean;
        out.store(i, scale * (dy.load(i) - dy_mean - centered * slope));
      });
    }
  }
};

double at_least_one(std::size_t n) {
  return static_cast<double>(std::max<std::size_t>(n, 1));
}

std::size_t elements(const channel_sizes& size) {
  return size.count * size.channels * size.pixels;
}

launch_size per_channel(const channel_sizes& size) {
  return {blocks_for(size.channels, 1), block_warps * sizeof(double)};
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

void channel_moments(stream where, const channel_sizes& size, mixed_input x, float* out) {
  with_view({x, elements(size)}, [&](auto from) {
    launch(where, "channel_moments", per_channel(size),
           moments_kernel<decltype(from)>{{size}, from, {out, 2 * size.channels}});
  });
}

void normalize_channels(stream where, const channel_sizes& size, mixed_input x,
                        const float* moments, double epsilon, mixed_output out) {
  const auto n = elements(size);
  with_views(
    out, n,
    [&](auto to, auto from) {
      launch(where, "normalize_channels", per_channel(size),
             channels_kernel<decltype(from), decltype(to)>{
               {size}, from, {moments, 2 * size.channels}, to, epsilon});
    },
    read_elements{x, n});
}

void normalize_channels_gradient(stream where, const channel_sizes& size, mixed_input dy,
                                 mixed_input x, const float* moments, double epsilon,
                                 const channel_totals& totals, mixed_output out) {
  const auto n = elements(size);
  const auto each = totals.sums != nullptr ? totals.each : size.count * size.pixels;
  with_views(
    out, n,
    [&](auto to, auto gradient, auto from) {
      launch(
        where, "normalize_channels_gradient", per_channel(size),
        channels_gradient_kernel<decltype(from), decltype(to)>{{size},
                                                               gradient,
                                                               from,
                                                               {moments, 2 * size.channels},
                                                               {totals.sums, 2 * size.channels},
                                                               to,
                                                               epsilon,
                                                               at_least_one(each)});
    },
    read_elements{dy, n}, read_elements{x, n});
}

void channel_sums(stream where, const channel_sizes& size, mixed_input x, double* out) {
  with_view({x, elements(size)}, [&](auto from) {
    launch(where, "channel_sums", per_channel(size),
           sums_kernel<decltype(from)>{{size}, from, {out, 2 * size.channels}});
  });
}

void moments_of_sums(stream where, std::size_t channels, const channel_totals& totals, float* out) {
  launch(where, "moments_of_sums", {blocks_for(channels)},
         moments_of_sums_kernel{
           {totals.sums, 2 * channels}, {out, 2 * channels}, channels, at_least_one(totals.each)});
}

void channel_products(stream where, const channel_sizes& size, mixed_input dy, mixed_input x,
                      const float* moments, double* out) {
  const auto n = elements(size);
  with_views(
    mixed_output{nullptr, dy.type}, 0,
    [&](auto, auto gradient, auto from) {
      launch(where, "channel_products", per_channel(size),
             products_kernel<decltype(from)>{
               {size}, gradient, from, {moments, 2 * size.channels}, {out, 2 * size.channels}});
    },
    read_elements{dy, n}, read_elements{x, n});
}

} // namespace troupe::cuda
