#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/convolution.hpp"
#include "kernels/cuda/normalization.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/cuda/on_gpu.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::test;

namespace {

// A convolution adds up at most 1,000 products in float: errors grow as the root of their number,
// times 2^-24, relative to the largest element.
constexpr double convolution_tolerance = 4e-6;
// Everything else adds up in double and rounds a few times.
constexpr double tolerance = 1e-6;

/// Windows with all that they may have.
const window windows[] = {
  {3, 3}, {2, 3, 2, 1}, {3, 2, 1, 2, 1, 1}, {1, 1, 2, 2}, {5, 5, 3, 2, 2, 2}};

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_images)

BOOST_AUTO_TEST_CASE(convolutions) {
  for (const auto& how : windows)
    for (const std::int64_t groups : {1, 2}) {
      auto grouped = how;
      grouped.groups = groups;
      graph g;
      const auto x = g.placeholder("x", {shape::batch, 4, 9, 7});
      const auto w = g.variable("w", {6, 4 / groups, how.height, how.width});
      const auto y = add_channel_bias(conv2d(x, w, grouped), g.variable("b", {6}));
      check_on_gpu(g, tanh(y), convolution_tolerance);
    }
}

// More filters, patches and positions than a tile, in several parts.
BOOST_AUTO_TEST_CASE(convolutions_larger_than_a_tile) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 9, 12, 11});
  const auto h = conv2d(x, g.variable("w", {70, 9, 3, 3}), {3, 3});
  const auto y = conv2d(h, g.variable("v", {3, 70, 2, 2}), {2, 2, 2, 2});
  const auto values = random_leaves(g, 9);
  const auto loss = to_scalar(y);
  const auto expected = execute<double>(g, values, loss, {y}, true);
  in_all_orders([&] {
    const auto actual = execute_on_gpu(g, values, loss, {y}, true);
    const auto scale = [](const auto& z) { return std::abs(*std::ranges::max_element(z)); };
    check_close(actual.fetches[0], expected.fetches[0], convolution_tolerance,
                convolution_tolerance * scale(expected.fetches[0]), "two convolutions");
    check_close(actual.gradient, expected.gradient, 10 * convolution_tolerance,
                10 * convolution_tolerance * scale(expected.gradient), "their gradients");
  });
}

BOOST_AUTO_TEST_CASE(pooling) {
  for (const auto& how : windows) {
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 3, 9, 7});
    const auto scaled = multiply_channels(x, g.variable("scale", {3}));
    check_on_gpu(g, max_pool(scaled, how), tolerance);
    check_on_gpu(g, average_pool(scaled, how), tolerance);
  }
}

// Equal elements, and one that is not a number: the bits of the CPU, and so the same choice.
BOOST_AUTO_TEST_CASE(maxima_that_are_not_alone) {
  const cpu::images in{2, 2, 6, 5};
  for (const auto& how : windows) {
    const cpu::images out{2, 2, static_cast<std::size_t>(how.rows(6)),
                          static_cast<std::size_t>(how.columns(5))};
    std::vector<float> x(in.count * in.per_image());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i * 7 % 3);
    x[8] = std::numeric_limits<float>::quiet_NaN();
    const auto v = random_floats(x.size(), "v");
    const auto dy = random_floats(out.count * out.per_image(), "dy");
    std::vector<float> y(dy.size());
    std::vector<float> dx(x.size());
    cpu::max_pool_select<float>(in, out, how, v.data(), x.data(), y.data(), {0, 4});
    cpu::max_pool_gradient<float>(in, out, how, dy.data(), x.data(), {}, dx.data(), {0, 4});
    const device_array<float> device_v(v);
    const device_array<float> device_x(x);
    const device_array<float> device_dy(dy);
    const device_array<float> device_y(y.size());
    const device_array<float> device_dx(x.size());
    cuda::max_pool_select({}, in, out, how, device_v.data(), device_x.data(), device_y.data());
    cuda::max_pool_gradient({}, in, out, how, device_dy.data(), device_x.data(), device_dx.data());
    BOOST_TEST(same_bits(device_y.values(), y));
    BOOST_TEST(same_bits(device_dx.values(), dx));
  }
}

BOOST_AUTO_TEST_CASE(batch_normalization) {
  for (const std::int64_t pixels : {1, 5, 17}) { // 33 rows of 17 * 17 are more than a block
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 3, pixels, pixels});
    const auto scaled = multiply_channels(x, g.variable("scale", {3}));
    const batch_norm_variables variables{g.variable("gain", {3}), g.variable("bias", {3}),
                                         g.variable("mean", {3}, {}, parameter_kind::state),
                                         g.variable("variance", {3}, {}, parameter_kind::state)};
    check_on_gpu(g, batch_norm(scaled, variables), tolerance * 10);
  }
}

BOOST_AUTO_TEST_CASE(channels) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 3, 4, 5});
  const auto y = multiply(x, broadcast_channels(sum_channels(x), x.shape()));
  check_on_gpu(g, add_channel_bias(y, g.variable("b", {3})), tolerance);
}

// Results over their operands.
BOOST_AUTO_TEST_CASE(normalization_in_place) {
  const cuda::channel_sizes size{3, 2, 150};
  const auto x = random_floats(900, "x");
  const auto dy = random_floats(900, "dy");
  const device_array<float> a(x);
  const device_array<float> b(dy);
  const device_array<float> moments(4);
  const device_array<float> apart(900);
  in_all_orders([&] {
    cuda::channel_moments({}, size, a.data(), moments.data());
    cuda::normalize_channels_gradient({}, size, b.data(), a.data(), moments.data(), 1e-5,
                                      apart.data());
    const device_array<float> over_dy(dy);
    cuda::normalize_channels_gradient({}, size, over_dy.data(), a.data(), moments.data(), 1e-5,
                                      over_dy.data());
    BOOST_TEST(same_bits(over_dy.values(), apart.values()));
    cuda::normalize_channels({}, size, a.data(), moments.data(), 1e-5, apart.data());
    const device_array<float> over_x(x);
    cuda::normalize_channels({}, size, over_x.data(), moments.data(), 1e-5, over_x.data());
    BOOST_TEST(same_bits(over_x.values(), apart.values()));
  });
}

BOOST_AUTO_TEST_SUITE_END()
