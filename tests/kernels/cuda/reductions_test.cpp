#include "kernels/cuda/reductions.hpp"

#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace troupe::test;

// Tolerances: terms are exact in double. A sum of n terms has an error of n / 2^53, relative to the
// sum of their absolute values. A result in float is rounded once more: 2^-24.

namespace {

constexpr double exact = 1e-12;
constexpr double rounding = 6e-8;

/// Runs `f` in all orders of threads, and checks that the bits of its results are the same.
template <class F>
std::vector<float> in_any_order(F f) {
  std::vector<float> first;
  in_all_orders([&] {
    const std::vector<float> result = f();
    if (first.empty())
      first = result;
    BOOST_TEST(same_bits(result, first));
  });
  return first;
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_reductions)

BOOST_AUTO_TEST_CASE(sums_of_all) {
  const device_array<double> space(cuda::sum_space);
  for (const auto n : element_counts) {
    const auto a = random_floats(n, "a");
    const auto b = random_floats(n, "b");
    double sum = 0;
    double absolute = 1;
    double squares = 0;
    double squares_of_x = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(a[i]);
      const auto d = x - static_cast<double>(b[i]);
      sum += x;
      squares_of_x += x * x;
      absolute += std::abs(x);
      squares += d * d;
    }
    const device_array<float> x(a);
    const device_array<float> y(b);
    const auto check = [&](double expected, const char* what, auto run) {
      in_any_order([&] {
        const device_array<double> all(1);
        const device_array<float> single(1);
        run(cuda::scalar_result{all.data(), single.data()});
        check_close(all.values(), std::vector{expected}, exact, exact * absolute, what);
        check_close(single.values(), all.values(), rounding, 0, what);
        return single.values();
      });
    };
    check(0.5 * sum, "sum", [&](auto out) { cuda::sum({}, n, x.data(), 0.5, space.data(), out); });
    check(3 * squares, "squared error",
          [&](auto out) { cuda::squared_error({}, n, x.data(), y.data(), 3, space.data(), out); });
    check(squares_of_x, "sum of squares",
          [&](auto out) { cuda::sum_of_squares({}, n, x.data(), space.data(), out); });
    const device_array<double> wide(as_doubles(a));
    check(sum, "sum of doubles",
          [&](auto out) { cuda::sum({}, n, wide.data(), 1, space.data(), out); });
  }
}

BOOST_AUTO_TEST_CASE(binary_correct) {
  const device_array<double> space(cuda::sum_space);
  const device_array<float> logits(std::vector<float>{1, -1, 0, 2, -2, 1, NAN, NAN});
  const device_array<std::int32_t> labels(std::vector<std::int32_t>{1, 0, 0, 0, 1, 2, 0, 1});
  const device_array<double> out(1);
  cuda::binary_correct({}, 8, logits.data(), labels.data(), space.data(), {out.data(), nullptr});
  BOOST_TEST(out.values()[0] == 3);
}

BOOST_AUTO_TEST_CASE(sums_of_rows_and_columns) {
  for (const std::size_t rows : {0, 1, 7, 33, 257, 997})
    for (const std::size_t columns : {1, 31, 32, 33, 131}) {
      const auto a = random_floats(rows * columns, "a");
      std::vector<double> by_row(rows);
      std::vector<double> by_column(columns);
      for (std::size_t i = 0; i < a.size(); ++i) {
        by_row[i / columns] += static_cast<double>(a[i]);
        by_column[i % columns] += static_cast<double>(a[i]);
      }
      const device_array<float> x(a);
      const auto columns_sum = in_any_order([&] {
        const device_array<double> space(cuda::row_parts(rows, columns) * columns);
        const device_array<float> out(columns);
        cuda::sum_leading({}, rows, columns, x.data(), space.data(), out.data());
        return out.values();
      });
      check_close(columns_sum, by_column, rounding, 1e-10, "sum_leading");
      const auto rows_sum = in_any_order([&] {
        const device_array<float> out(rows);
        cuda::sum_last({}, rows, columns, x.data(), out.data());
        return out.values();
      });
      check_close(rows_sum, by_row, rounding, 1e-10, "sum_last");
    }
}

BOOST_AUTO_TEST_CASE(sums_of_channels) {
  for (const std::size_t count : {0, 1, 5})
    for (const std::size_t pixels : {1, 33, 256, 300, 4999, 5000}) {
      const std::size_t channels = 3;
      const cuda::channel_sizes size{count, channels, pixels};
      const auto a = random_floats(count * channels * pixels, "a");
      std::vector<double> expected(channels);
      for (std::size_t i = 0; i < a.size(); ++i)
        expected[i / pixels % channels] += static_cast<double>(a[i]);
      const device_array<float> x(a);
      const auto sums = in_any_order([&] {
        const device_array<float> out(channels);
        const device_array<double> space(cuda::channel_parts(size) * channels);
        cuda::sum_channels({}, size, x.data(), space.data(), out.data());
        return out.values();
      });
      check_close(sums, expected, rounding, 1e-10, "sum_channels");
    }
}

BOOST_AUTO_TEST_SUITE_END()
