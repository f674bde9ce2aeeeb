#include "kernels/cpu/channels.hpp"

#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::cpu {

namespace {

/// Number of channels, or of pixels, that are processed at a time, as one vector.
constexpr std::size_t lanes = 16;

/// Calls f(first channel, number of channels) for groups of at most `lanes` channels.
template <class F>
void each_group(std::size_t channels, F f) {
  for (std::size_t c = 0; c < channels; c += lanes)
    f(c, std::min(lanes, channels - c));
}

/// For each of `count` channels from `first` on, returns the sum of f(channel, element) over the
/// elements of the channel, in double. The images are added in order. Within an image, there are
/// `lanes` partial sums, which form a vector. If an image has only one pixel, the vector contains
/// the sums of different channels instead.
template <class F>
std::array<double, lanes> sums_of(const images& size, std::size_t first, std::size_t count, F f) {
  std::array<double, lanes> totals{};
  const auto pixels = size.pixels();
  for (std::size_t n = 0; n < size.count; ++n) {
    const std::size_t begin = n * size.per_image() + first * pixels;
    if (pixels == 1) {
      for (std::size_t j = 0; j < count; ++j)
        totals[j] += f(first + j, begin + j);
      continue;
    }
    for (std::size_t j = 0; j < count; ++j) {
      std::array<double, lanes> parts{};
      const std::size_t from = begin + j * pixels;
      const std::size_t whole = pixels / lanes * lanes;
      for (std::size_t i = 0; i < whole; i += lanes)
        for (std::size_t k = 0; k < lanes; ++k)
          parts[k] += f(first + j, from + i + k);
      for (std::size_t i = whole; i < pixels; ++i)
        parts[i - whole] += f(first + j, from + i);
      for (const double part : parts)
        totals[j] += part;
    }
  }
  return totals;
}

/// out[i] = f(channel of element i, i) for all elements.
template <class T, class F>
void transform(const images& size, T* out, F f) {
  const auto pixels = size.pixels();
  for (std::size_t n = 0; n < size.count; ++n) {
    const std::size_t begin = n * size.per_image();
    if (pixels == 1) {
      TROUPE_INDEPENDENT
      for (std::size_t c = 0; c < size.channels; ++c)
        out[begin + c] = f(c, begin + c);
      continue;
    }
    for (std::size_t c = 0; c < size.channels; ++c) {
      const std::size_t from = begin + c * pixels;
      TROUPE_INDEPENDENT
      for (std::size_t i = 0; i < pixels; ++i)
        out[from + i] = f(c, from + i);
    }
  }
}

/// The sums of dy and of dy (x - mean), for each of `count` channels from `first` on.
template <class T>
std::array<std::array<double, lanes>, 2> products_of(const images& size, std::size_t first,
                                                     std::size_t count, const T* dy, const T* x,
                                                     const T* moments) {
  return {sums_of(size, first, count,
                  [&](std::size_t, std::size_t i) { return static_cast<double>(dy[i]); }),
          sums_of(size, first, count, [&](std::size_t c, std::size_t i) {
            return static_cast<double>(dy[i]) * static_cast<double>(x[i] - moments[c]);
          })};
}

/// Writes the sums from products_of(), two for each of `count` channels, to out (2, channels).
void store(const std::array<std::array<double, lanes>, 2>& sums, std::size_t first,
           std::size_t count, std::size_t channels, double* out) {
  for (std::size_t part = 0; part < 2; ++part)
    std::copy_n(sums[part].begin(), count, out + part * channels + first);
}

template <class T>
T scale_of(T variance, double epsilon) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(variance) + epsilon));
}

} // namespace

template <class T>
void multiply_channels(const images& size, const T* x, const T* g, T* out) {
  transform(size, out, [&](std::size_t c, std::size_t i) { return x[i] * g[c]; });
}

template <class T>
void channel_moments(const images& size, const T* x, T* out) {
  const auto n = static_cast<double>(std::max<std::size_t>(size.count * size.pixels(), 1));
  each_group(size.channels, [&](std::size_t first, std::size_t count) {
    const auto sums = sums_of(
      size, first, count, [&](std::size_t, std::size_t i) { return static_cast<double>(x[i]); });
    std::array<double, lanes> means{};
    for (std::size_t j = 0; j < count; ++j)
      means[j] = sums[j] / n;
    const auto squares = sums_of(size, first, count, [&](std::size_t c, std::size_t i) {
      const double d = static_cast<double>(x[i]) - means[c - first];
      return d * d;
    });
    for (std::size_t j = 0; j < count; ++j) {
      out[first + j] = static_cast<T>(means[j]);
      out[size.channels + first + j] = static_cast<T>(squares[j] / n);
    }
  });
}

template <class T>
void channel_sums(const images& size, const T* x, double* out) {
  each_group(size.channels, [&](std::size_t first, std::size_t count) {
    const auto at = [&](std::size_t i) { return static_cast<double>(x[i]); };
    store({sums_of(size, first, count, [&](std::size_t, std::size_t i) { return at(i); }),
           sums_of(size, first, count, [&](std::size_t, std::size_t i) { return at(i) * at(i); })},
          first, count, size.channels, out);
  });
}

template <class T>
void moments_of_sums(std::size_t channels, const double* sums, std::size_t n, T* out) {
  const auto count = static_cast<double>(std::max<std::size_t>(n, 1));
  for (std::size_t c = 0; c < channels; ++c) {
    const auto mean = sums[c] / count;
    const auto variance = sums[channels + c] / count - mean * mean;
    out[c] = static_cast<T>(mean);
    out[channels + c] = static_cast<T>(variance < 0 ? 0 : variance); // NaN stays NaN
  }
}

template <class T>
void normalize_channels(const images& size, const T* x, const T* moments, double epsilon, T* out) {
  // The channels are processed in groups, so the square root is computed once per channel, not once
  // per element.
  each_group(size.channels, [&](std::size_t first, std::size_t count) {
    std::array<T, lanes> scale{};
    for (std::size_t j = 0; j < count; ++j)
      scale[j] = scale_of(moments[size.channels + first + j], epsilon);
    const auto pixels = size.pixels();
    for (std::size_t n = 0; n < size.count; ++n) {
      const std::size_t begin = n * size.per_image() + first * pixels;
      transform(images{1, count, pixels, 1}, out + begin, [&](std::size_t c, std::size_t i) {
        return (x[begin + i] - moments[first + c]) * scale[c];
      });
    }
  });
}

template <class T>
void channel_products(const images& size, const T* dy, const T* x, const T* moments, double* out) {
  each_group(size.channels, [&](std::size_t first, std::size_t count) {
    store(products_of(size, first, count, dy, x, moments), first, count, size.channels, out);
  });
}

template <class T>
void normalize_channels_gradient(const images& size, const T* dy, const T* x, const T* moments,
                                 double epsilon, const double* totals, std::size_t total_n,
                                 T* out) {
  const auto own_n = size.count * size.pixels();
  const auto n = static_cast<double>(std::max<std::size_t>(totals == nullptr ? own_n : total_n, 1));
  each_group(size.channels, [&](std::size_t first, std::size_t count) {
    std::array<T, lanes> scale{};
    for (std::size_t j = 0; j < count; ++j)
      scale[j] = scale_of(moments[size.channels + first + j], epsilon);
    std::array<std::array<double, lanes>, 2> sums{};
    if (totals == nullptr)
      sums = products_of(size, first, count, dy, x, moments);
    else
      for (std::size_t part = 0; part < 2; ++part)
        std::copy_n(totals + part * size.channels + first, count, sums[part].begin());
    // dx = scale (dy - mean(dy) - (x - mean) scale^2 mean(dy (x - mean)))
    std::array<T, lanes> mean{};
    std::array<T, lanes> slope{};
    for (std::size_t j = 0; j < count; ++j) {
      const auto s = static_cast<double>(scale[j]);
      mean[j] = static_cast<T>(sums[0][j] / n);
      slope[j] = static_cast<T>(s * s * sums[1][j] / n);
    }
    const auto pixels = size.pixels();
    for (std::size_t k = 0; k < size.count; ++k) {
      const std::size_t begin = k * size.per_image() + first * pixels;
      transform(images{1, count, pixels, 1}, out + begin, [&](std::size_t c, std::size_t i) {
        const T centered = x[begin + i] - moments[first + c];
        return scale[c] * (dy[begin + i] - mean[c] - centered * slope[c]);
      });
    }
  });
}

// NOLINTBEGIN(bugprone-macro-parentheses): types in declarations must not be in parentheses
#define TROUPE_INSTANTIATE(T)                                                                      \
  template void multiply_channels(const images&, const T*, const T*, T*);                          \
  template void channel_moments(const images&, const T*, T*);                                      \
  template void channel_sums(const images&, const T*, double*);                                    \
  template void moments_of_sums(std::size_t, const double*, std::size_t, T*);                      \
  template void channel_products(const images&, const T*, const T*, const T*, double*);            \
  template void normalize_channels(const images&, const T*, const T*, double, T*);                 \
  template void normalize_channels_gradient(const images&, const T*, const T*, const T*, double,   \
                                            const double*, std::size_t, T*);
// NOLINTEND(bugprone-macro-parentheses)

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
