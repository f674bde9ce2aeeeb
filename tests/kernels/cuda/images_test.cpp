#include "kernels/cpu/channels.hpp"
#include "kernels/cpu/convolution.hpp"
#include "kernels/cuda/convolution.hpp"
#include "kernels/cuda/normalization.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <limits>
#include <vector>

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

// Windows have several equal maxima, or a NaN. The bits must be those of the CPU, which shows that
// the GPU chooses the same element. Windows that do not overlap are computed by another kernel.
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
  for (const std::size_t pixels : {150, 5000}) {
    const cuda::channel_sizes size{3, 2, pixels};
    const auto n = 3 * 2 * pixels;
    const auto x = random_floats(n, "x");
    const auto dy = random_floats(n, "dy");
    const device_array<float> a(x);
    const device_array<float> b(dy);
    const device_array<float> moments(4);
    const device_array<float> apart(n);
    const device_array<double> space(cuda::channel_space(size));
    const auto gradient = [&](const float* from_dy, const float* from_x, float* out) {
      cuda::normalize_channels_gradient({}, size, from_dy, from_x, moments.data(), 1e-5, {},
                                        space.data(), out);
    };
    in_all_orders([&] {
      cuda::channel_moments({}, size, a.data(), space.data(), moments.data());
      gradient(b.data(), a.data(), apart.data());
      const device_array<float> over_dy(dy);
      gradient(over_dy.data(), a.data(), over_dy.data());
      BOOST_TEST(same_bits(over_dy.values(), apart.values()));
      const device_array<float> gradient_over_x(x);
      gradient(b.data(), gradient_over_x.data(), gradient_over_x.data());
      BOOST_TEST(same_bits(gradient_over_x.values(), apart.values()));
      cuda::normalize_channels({}, size, a.data(), moments.data(), 1e-5, apart.data());
      const device_array<float> over_x(x);
      cuda::normalize_channels({}, size, over_x.data(), moments.data(), 1e-5, over_x.data());
      BOOST_TEST(same_bits(over_x.values(), apart.values()));
    });
  }
}

// Sums of at most 20,011 floats are added up in double and rounded once.
BOOST_AUTO_TEST_CASE(channels_of_all_sizes) {
  std::vector<cuda::channel_sizes> sizes;
  for (const auto n : element_counts) {
    sizes.push_back({2, 3, n});
    if (n < 1000)
      sizes.push_back({n, 2, 3});
    if (n > 0 && n < 1000)
      sizes.push_back({2, n, 3});
  }
  for (const auto& size : sizes) {
    const cpu::images shape{size.count, size.channels, size.pixels, 1};
    const auto n = size.count * size.channels * size.pixels;
    const auto x = random_floats(n, "x");
    const auto dy = random_floats(n, "dy");
    const auto exact_x = as_doubles(x);
    std::vector<double> sums(size.channels);
    std::vector<double> moments(2 * size.channels);
    std::vector<double> normal(n);
    std::vector<double> dx(n);
    cpu::sum_channels(shape, exact_x.data(), sums.data(), {0, size.channels});
    cpu::channel_moments(shape, exact_x.data(), moments.data());
    const device_array<float> device_x(x);
    const device_array<float> device_dy(dy);
    const device_array<double> space(
      std::max(cuda::channel_space(size), cuda::channel_parts(size) * size.channels));
    const device_array<float> device_sums(size.channels);
    const device_array<float> device_moments(2 * size.channels);
    const device_array<float> out(n);
    cuda::sum_channels({}, size, device_x.data(), space.data(), device_sums.data());
    check_close(device_sums.values(), sums, 1e-6, 1e-5, "sum_channels");
    cuda::channel_moments({}, size, device_x.data(), space.data(), device_moments.data());
    check_close(device_moments.values(), moments, 1e-6, 1e-6, "channel_moments");
    const auto same = as_doubles(device_moments.values()); // the next functions get these moments
    cpu::normalize_channels(shape, exact_x.data(), same.data(), 1e-2, normal.data());
    cuda::normalize_channels({}, size, device_x.data(), device_moments.data(), 1e-2, out.data());
    check_close(out.values(), normal, 1e-5, 1e-5, "normalize_channels");
    cpu::normalize_channels_gradient(shape, as_doubles(dy).data(), exact_x.data(), same.data(),
                                     1e-2, nullptr, 0, dx.data());
    cuda::normalize_channels_gradient({}, size, device_dy.data(), device_x.data(),
                                      device_moments.data(), 1e-2, {}, space.data(), out.data());
    check_close(out.values(), dx, 1e-5, 1e-4, "normalize_channels_gradient");
  }
}

// A channel has several parts, with and without packs, and its mean is 100 times its deviation. The
// bits do not depend on the order of threads, nor on the addresses of the images.
BOOST_AUTO_TEST_CASE(normalization_of_several_parts) {
  for (const std::size_t pixels : {4999, 5000}) {
    const cuda::channel_sizes size{5, 3, pixels};
    const cpu::images shape{5, 3, pixels, 1};
    const auto n = 5 * 3 * pixels;
    auto x = random_floats(n, "x");
    for (auto& v : x)
      v += 100;
    const auto dy = random_floats(n, "dy");
    const device_array<double> space(cuda::channel_space(size));
    const device_array<float> moments(6);
    const device_array<float> result(n);
    /// Runs f(x, dy), and returns the contents of `out`.
    const auto run = [&](const device_array<float>& out, auto f) {
      std::vector<float> first;
      for (const std::size_t offset : {0, 1}) {
        const auto placed = [&](std::vector<float> values) {
          values.insert(values.begin(), offset, 0);
          return values;
        };
        const device_array<float> from_x(placed(x));
        const device_array<float> from_dy(placed(dy));
        in_all_orders([&] {
          f(from_x.data() + offset, from_dy.data() + offset);
          if (first.empty())
            first = out.values();
          BOOST_TEST(same_bits(out.values(), first));
        });
      }
      return first;
    };
    const auto exact_x = as_doubles(x);
    const auto exact_dy = as_doubles(dy);
    std::vector<double> expected_moments(6);
    cpu::channel_moments(shape, exact_x.data(), expected_moments.data());
    const auto found = run(moments, [&](const float* v, const float*) {
      cuda::channel_moments({}, size, v, space.data(), moments.data());
    });
    check_close(found, expected_moments, 1e-7, 0, "moments");
    const auto same = as_doubles(found); // the next functions get the same moments
    std::vector<double> expected(n);
    cpu::normalize_channels(shape, exact_x.data(), same.data(), 1e-5, expected.data());
    const auto normal = run(result, [&](const float* v, const float*) {
      cuda::normalize_channels({}, size, v, moments.data(), 1e-5, result.data());
    });
    check_close(normal, expected, 1e-6, 1e-6, "normalize_channels");
    cpu::normalize_channels_gradient(shape, exact_dy.data(), exact_x.data(), same.data(), 1e-5,
                                     nullptr, 0, expected.data());
    const auto gradient = run(result, [&](const float* v, const float* d) {
      cuda::normalize_channels_gradient({}, size, d, v, moments.data(), 1e-5, {}, space.data(),
                                        result.data());
    });
    check_close(gradient, expected, 1e-6, 1e-6, "normalize_channels_gradient");
  }
}

// The terms are exact in double. A sum is rounded once for each term.
BOOST_AUTO_TEST_CASE(normalization_by_sums_over_workers) {
  auto sizes = element_counts;
  sizes.push_back(5000); // several parts with packs
  for (const auto pixels : sizes)
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
      const device_array<double> space(cuda::channel_space(size));
      const device_array<double> device_sums(2 * channels);
      const device_array<float> device_moments(2 * channels);
      const device_array<float> device_dx(n);
      const auto times_three = [&] {
        for (std::size_t i = 0; i < device_sums.size(); ++i)
          device_sums.data()[i] *= 3;
      };
      cuda::channel_sums({}, size, device_x.data(), space.data(), device_sums.data());
      times_three();
      check_close(device_sums.values(), sums, 1e-12, 1e-11, "sums");
      cuda::moments_of_sums({}, channels, {device_sums.data(), all}, device_moments.data());
      check_close(device_moments.values(), as_doubles(moments), 1e-6, 1e-7, "moments");
      cuda::channel_products({}, size, device_dy.data(), device_x.data(), device_moments.data(),
                             space.data(), device_sums.data());
      times_three();
      check_close(device_sums.values(), products, 1e-6, 1e-4, "products");
      cuda::normalize_channels_gradient({}, size, device_dy.data(), device_x.data(),
                                        device_moments.data(), 1e-5, {device_sums.data(), all},
                                        nullptr, device_dx.data());
      check_close(device_dx.values(), as_doubles(dx), 1e-5, 1e-5, "gradient");
    }
}

BOOST_AUTO_TEST_SUITE_END()
