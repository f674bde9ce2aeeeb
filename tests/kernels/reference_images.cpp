// A second, simple implementation of the operations on images, to compare with. It follows their
// definitions in loops over all indices.

#include "tests/kernels/reference_images.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>

namespace troupe::test {

namespace {

using values = std::vector<double>;

struct image {
  const values* data;
  std::int64_t count, channels, height, width;

  double at(std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j) const {
    const bool inside = i >= 0 && j >= 0 && i < height && j < width;
    return inside ? (*data)[index(n, c, i, j)] : 0;
  }
  std::size_t index(std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>(((n * channels + c) * height + i) * width + j);
  }
};

image view(const values& data, const shape& dims, std::size_t batch) {
  auto extent = [&](std::size_t axis) {
    return axis >= dims.rank()     ? 1
      : dims[axis] == shape::batch ? static_cast<std::int64_t>(batch)
                                   : dims[axis];
  };
  return {&data, extent(0), extent(1), extent(2), extent(3)};
}

/// Calls f(n, o, i, j, c, u, v, p, q) for all terms of a convolution from x to y: y[n,o,i,j] is the
/// sum of w[o,c,u,v] x[n, c of the group, p, q].
template <class F>
void each_term(const window& how, const image& x, const image& y, F f) {
  const auto channels = x.channels / how.groups;
  const auto filters = y.channels / how.groups;
  for (std::int64_t n = 0; n < x.count; ++n)
    for (std::int64_t o = 0; o < y.channels; ++o)
      for (std::int64_t i = 0; i < y.height; ++i)
        for (std::int64_t j = 0; j < y.width; ++j)
          for (std::int64_t c = 0; c < channels; ++c)
            for (std::int64_t u = 0; u < how.height; ++u)
              for (std::int64_t v = 0; v < how.width; ++v) {
                const auto p = i * how.stride_y + u * how.dilation_y - how.pad_y;
                const auto q = j * how.stride_x + v * how.dilation_x - how.pad_x;
                if (p >= 0 && q >= 0 && p < x.height && q < x.width)
                  f(y.index(n, o, i, j),
                    static_cast<std::size_t>(((o * channels + c) * how.height + u) * how.width + v),
                    x.index(n, o / filters * channels + c, p, q));
              }
}

/// Finds the largest element of the image x in each window. Calls f(index in the result y, index in
/// x) for it.
template <class F>
void each_largest(const window& how, const image& x, const image& y, F f) {
  for (std::int64_t n = 0; n < x.count; ++n)
    for (std::int64_t c = 0; c < x.channels; ++c)
      for (std::int64_t i = 0; i < y.height; ++i)
        for (std::int64_t j = 0; j < y.width; ++j) {
          double best = -HUGE_VAL;
          std::size_t where = 0;
          for (std::int64_t u = 0; u < how.height; ++u)
            for (std::int64_t v = 0; v < how.width; ++v) {
              const auto p = i * how.stride_y + u - how.pad_y;
              const auto q = j * how.stride_x + v - how.pad_x;
              if (p < 0 || q < 0 || p >= x.height || q >= x.width || !(x.at(n, c, p, q) > best))
                continue;
              best = x.at(n, c, p, q);
              where = x.index(n, c, p, q);
            }
          f(y.index(n, c, i, j), where);
        }
}

} // namespace

namespace {

/// The value of a node of batch normalization.
values channel_value(const node& n, const std::vector<values>& inputs, const image& a,
                     const image& y, std::size_t batch) {
  values out(n.shape.elements(batch));
  const auto& x0 = inputs[0];
  const auto channel = [](const image& whole, std::size_t i) {
    const auto pixels = static_cast<std::size_t>(whole.height * whole.width);
    return i / pixels % static_cast<std::size_t>(whole.channels);
  };
  const auto channels = static_cast<std::size_t>(a.channels);
  const auto each = static_cast<double>(a.count * a.height * a.width);
  const auto mean = [&](auto f) {
    values result(channels);
    for (std::size_t i = 0; i < x0.size(); ++i)
      result[channel(a, i)] += f(i) / each;
    return result;
  };
  switch (n.op) {
  case operation::multiply_channels:
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = x0[i] * inputs[1][channel(y, i)];
    return out;
  case operation::channel_moments: {
    const auto means = mean([&](auto i) { return x0[i]; });
    const auto variances = mean([&](auto i) { return std::pow(x0[i] - means[channel(a, i)], 2); });
    std::copy(means.begin(), means.end(), out.begin());
    std::copy(variances.begin(), variances.end(), out.begin() + a.channels);
    return out;
  }
  case operation::normalize_channels:
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto c = channel(y, i);
      out[i] = (x0[i] - inputs[1][c]) / std::sqrt(inputs[1][channels + c] + n.factor);
    }
    return out;
  case operation::normalize_channels_gradient: {
    const auto& moments = inputs[2];
    const auto deviation = [&](auto c) { return std::sqrt(moments[channels + c] + n.factor); };
    const auto normal = [&](auto i) {
      const auto c = channel(a, i);
      return (inputs[1][i] - moments[c]) / deviation(c);
    };
    const auto sum = mean([&](auto i) { return x0[i]; });
    const auto product = mean([&](auto i) { return x0[i] * normal(i); });
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto c = channel(a, i);
      out[i] = (x0[i] - sum[c] - normal(i) * product[c]) / deviation(c);
    }
    return out;
  }
  case operation::summed_mean:
    for (std::size_t c = 0; c < out.size(); ++c)
      out[c] = static_cast<double>(batch) * x0[c];
    return out;
  case operation::summed_variance: {
    const auto count = static_cast<double>(batch) * n.factor;
    for (std::size_t c = 0; c < out.size(); ++c)
      out[c] =
        static_cast<double>(batch) * x0[out.size() + c] * (count > 1 ? count / (count - 1) : 1);
    return out;
  }
  default:
    throw std::logic_error("no reference for " + std::string(to_string(n.op)));
  }
}

} // namespace

std::vector<double> image_value(const graph& g, const node& n,
                                const std::vector<std::vector<double>>& inputs, std::size_t batch) {
  values out(n.shape.elements(batch));
  const auto y = view(out, n.shape, batch);
  const auto a = view(inputs[0], g.at(n.inputs[0]).shape, batch);
  const auto& x0 = inputs[0];
  const auto& x1 = inputs.size() > 1 ? inputs[1] : inputs[0];
  const auto b = inputs.size() > 1 ? view(inputs[1], g.at(n.inputs[1]).shape, batch) : a;
  // The window in which each channel is a group of its own, as in a depthwise convolution.
  auto each_channel = n.window;
  each_channel.groups = a.channels;
  // An element o of `means` is the mean of a window of an image. Returns the weight of each element
  // of the window. `whole` gives the size of the image.
  const auto share = [&](std::size_t o, const image& means, const image& whole) {
    const auto position = static_cast<std::int64_t>(o) % (means.height * means.width);
    double count = 0;
    for (std::int64_t u = 0; u < n.window.height; ++u)
      for (std::int64_t v = 0; v < n.window.width; ++v) {
        const auto p = position / means.width * n.window.stride_y + u - n.window.pad_y;
        const auto q = position % means.width * n.window.stride_x + v - n.window.pad_x;
        if (p < whole.height + n.window.pad_y && q < whole.width + n.window.pad_x)
          ++count;
      }
    return 1 / count;
  };
  const auto channel = [&](const image& whole, std::size_t i) {
    const auto pixels = static_cast<std::size_t>(whole.height * whole.width);
    return i / pixels % static_cast<std::size_t>(whole.channels);
  };
  switch (n.op) {
  case operation::conv2d:
    each_term(n.window, a, y, [&](auto o, auto w, auto i) { out[o] += x1[w] * x0[i]; });
    break;
  case operation::conv2d_input_gradient:
    each_term(n.window, y, a, [&](auto o, auto w, auto i) { out[i] += x1[w] * x0[o]; });
    break;
  case operation::conv2d_weight_gradient:
    each_term(n.window, a, b, [&](auto o, auto w, auto i) { out[w] += x0[i] * x1[o]; });
    break;
  case operation::add_channel_bias:
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = x0[i] + x1[channel(y, i)];
    break;
  case operation::sum_channels:
    for (std::size_t i = 0; i < x0.size(); ++i)
      out[channel(a, i)] += x0[i];
    break;
  case operation::broadcast_channels:
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = x0[channel(y, i)];
    break;
  case operation::max_pool_select:
    each_largest(n.window, b, y, [&](auto o, auto i) { out[o] = x0[i]; });
    break;
  case operation::max_pool_gradient:
    each_largest(n.window, b, a, [&](auto o, auto i) { out[i] += x0[o]; });
    break;
  case operation::average_pool:
    each_term(each_channel, a, y, [&](auto o, auto, auto i) { out[o] += share(o, y, a) * x0[i]; });
    break;
  case operation::average_pool_gradient:
    each_term(each_channel, y, a, [&](auto o, auto, auto i) { out[i] += share(o, a, y) * x0[o]; });
    break;
  case operation::reshape:
    out = x0;
    break;
  default:
    return channel_value(n, inputs, a, y, batch);
  }
  return out;
}

} // namespace troupe::test
