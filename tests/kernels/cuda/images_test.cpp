#include "kernels/cpu/channels.hpp"
#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/convolution.hpp"
#include "kernels/cuda/normalization.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_images)

BOOST_AUTO_TEST_CASE(convolutions) {
  simulated_device gpu;
  check_convolutions(gpu);
}

BOOST_AUTO_TEST_CASE(convolutions_larger_than_a_tile) {
  simulated_device gpu;
  in_all_orders([&] { check_large_convolutions(gpu); });
}

BOOST_AUTO_TEST_CASE(pooling) {
  simulated_device gpu;
  check_pooling(gpu);
}

BOOST_AUTO_TEST_CASE(batch_normalization) {
  simulated_device gpu;
  check_batch_normalization(gpu);
}

BOOST_AUTO_TEST_CASE(channels) {
  simulated_device gpu;
  check_channels(gpu);
}

// Windows have several equal maxima, or a NaN. The bits are those of the CPU, so the GPU chooses
// the same element. Windows that do not overlap have a kernel of their own.
BOOST_AUTO_TEST_CASE(maxima_that_are_not_alone) {
  const cpu::images in{2, 2, 6, 5};
  auto all = windows;
  all.push_back({2, 2, 2, 2});
  all.push_back({3, 2, 4, 3, 1, 1});
  all.push_back({1, 2, 5, 5});
  for (const auto& how : all) {
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

// Results overwrite their operands.
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
    cuda::normalize_channels_gradient({}, size, b.data(), a.data(), moments.data(), 1e-5, {},
                                      apart.data());
    const device_array<float> over_dy(dy);
    cuda::normalize_channels_gradient({}, size, over_dy.data(), a.data(), moments.data(), 1e-5, {},
                                      over_dy.data());
    BOOST_TEST(same_bits(over_dy.values(), apart.values()));
    cuda::normalize_channels({}, size, a.data(), moments.data(), 1e-5, apart.data());
    const device_array<float> over_x(x);
    cuda::normalize_channels({}, size, over_x.data(), moments.data(), 1e-5, over_x.data());
    BOOST_TEST(same_bits(over_x.values(), apart.values()));
  });
}

// The terms are exact in double. A sum has as many roundings as terms.
BOOST_AUTO_TEST_CASE(normalization_by_sums_over_workers) {
  for (const auto pixels : element_counts)
    for (const std::size_t channels : {1, 3}) {
      const cuda::channel_sizes size{2, channels, pixels};
      const cpu::images shape{2, channels, pixels, 1};
      const auto n = 2 * channels * pixels;
      const auto x = random_floats(n, "x");
      const auto dy = random_floats(n, "dy");
      std::vector<double> sums(2 * channels);
      std::vector<double> products(2 * channels);
      std::vector<float> moments(2 * channels);
      std::vector<float> dx(n);
      const auto all = 3 * 2 * pixels; // as if three workers had the same images
      cpu::channel_sums(shape, x.data(), sums.data());
      for (auto& v : sums)
        v *= 3;
      cpu::moments_of_sums(channels, sums.data(), all, moments.data());
      cpu::channel_products(shape, dy.data(), x.data(), moments.data(), products.data());
      for (auto& v : products)
        v *= 3;
      cpu::normalize_channels_gradient(shape, dy.data(), x.data(), moments.data(), 1e-5,
                                       products.data(), all, dx.data());
      const device_array<float> device_x(x);
      const device_array<float> device_dy(dy);
      const device_array<double> device_sums(2 * channels);
      const device_array<float> device_moments(2 * channels);
      const device_array<float> device_dx(n);
      const auto times_three = [&] {
        for (std::size_t i = 0; i < device_sums.size(); ++i)
          device_sums.data()[i] *= 3;
      };
      cuda::channel_sums({}, size, device_x.data(), device_sums.data());
      times_three();
      check_close(device_sums.values(), sums, 1e-12, 1e-11, "sums");
      cuda::moments_of_sums({}, channels, {device_sums.data(), all}, device_moments.data());
      check_close(device_moments.values(), as_doubles(moments), 1e-6, 1e-7, "moments");
      cuda::channel_products({}, size, device_dy.data(), device_x.data(), device_moments.data(),
                             device_sums.data());
      times_three();
      check_close(device_sums.values(), products, 1e-6, 1e-4, "products");
      cuda::normalize_channels_gradient({}, size, device_dy.data(), device_x.data(),
                                        device_moments.data(), 1e-5, {device_sums.data(), all},
                                        device_dx.data());
      check_close(device_dx.values(), as_doubles(dx), 1e-5, 1e-5, "gradient");
    }
}

BOOST_AUTO_TEST_SUITE_END()
