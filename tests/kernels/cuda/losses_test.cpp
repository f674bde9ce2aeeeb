#include "kernels/cuda/losses.hpp"

#include "kernels/cpu/losses.hpp"
#include "kernels/cpu/sequences.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::test;

// The tolerance for probabilities, which are at most 1. exp has an error of 2 units in the last
// place, and the quotient adds one more: 4 * 2^-24 in total.

namespace {

constexpr double tolerance = 3e-7;

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_losses)

BOOST_AUTO_TEST_CASE(softmax) {
  for (const auto& [rows, columns] : matrix_sizes()) {
    const auto x = random_floats(rows * columns, "x");
    std::vector<double> expected(x.size());
    cpu::softmax<double>(rows, columns, as_doubles(x).data(), expected.data());
    in_all_orders([&, n = rows, width = columns] {
      const device_array<float> in_place(x);
      cuda::softmax({}, n, width, 0, in_place.data(), in_place.data());
      check_close(in_place.values(), expected, tolerance, tolerance, "softmax");
    });
  }
}

BOOST_AUTO_TEST_CASE(causal_softmax) {
  for (const std::size_t size : {0, 1, 31, 32, 33, 255, 256, 257}) {
    const auto x = random_floats(3 * size * size, "x");
    std::vector<double> expected(x.size());
    cpu::causal_softmax<double>(3, size, as_doubles(x).data(), expected.data());
    const device_array<float> in(x);
    const device_array<float> out(x.size());
    cuda::softmax({}, 3 * size, size, size, in.data(), out.data());
    check_close(out.values(), expected, tolerance, tolerance, "causal softmax");
  }
}

// Row i uses only its first i + 1 columns. The other columns stay 0, even if the results of the row
// are NaN.
BOOST_AUTO_TEST_CASE(causal_softmax_of_numbers_that_are_not_finite) {
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    auto x = random_floats(16, "x");
    x[0] = value;
    const device_array<float> in(x);
    const device_array<float> out(x.size());
    cuda::softmax({}, 4, 4, 4, in.data(), out.data());
    const auto y = out.values();
    BOOST_TEST(std::isnan(y[0]));
    for (std::size_t i = 0; i < y.size(); ++i)
      if (i % 4 > i / 4)
        BOOST_TEST(y[i] == 0);
  }
}

BOOST_AUTO_TEST_CASE(cross_entropy_forward_and_backward) {
  for (const auto& how : {cross_entropy{}, cross_entropy{0.1, std::nullopt}, cross_entropy{0, -1},
                          cross_entropy{0.2, 2}})
    for (const auto& size : matrix_sizes()) {
      const auto rows = size.rows;
      const auto classes = size.columns;
      const bool large = rows * classes > 5000;
      if (classes > 1 && (!large || how == cross_entropy{0.2, 2})) { // to save time
        const auto x = random_floats(rows * classes, "x");
        std::vector<std::int32_t> labels(rows);
        for (std::size_t r = 0; r < rows; ++r) // some labels are ignored
          labels[r] =
            r % 5 == 4 && how.ignored ? *how.ignored : static_cast<std::int32_t>(r * 7 % classes);
        std::vector<double> gradient(x.size());
        const auto expected = cpu::softmax_cross_entropy<double>(
          rows, classes, as_doubles(x).data(), labels.data(), how, 0.25, gradient.data(), true);
        const device_array<std::int32_t> classes_of(labels);
        const device_array<double> row_space(3 * rows);
        const device_array<double> space(cuda::sum_space);
        const device_array<double> results(3);
        in_all_orders([&] {
          const device_array<float> in_place(x);
          cuda::softmax_cross_entropy({},
                                      {rows, classes, in_place.data(), classes_of.data(), how, 0.25,
                                       in_place.data(), row_space.data(), space.data()},
                                      {results.data(), nullptr}, {results.data() + 1, nullptr},
                                      {results.data() + 2, nullptr});
          const auto [loss, correct, counted] =
            std::array{results.values()[0], results.values()[1], results.values()[2]};
          check_close(in_place.values(), gradient, tolerance, tolerance, "gradient");
          check_close(std::vector{loss}, std::vector{0.25 * expected.loss}, 1e-6, 1e-6, "loss");
          BOOST_TEST(correct == static_cast<double>(expected.correct));
          BOOST_TEST(counted == static_cast<double>(expected.counted));
        });
      }
    }
}

BOOST_AUTO_TEST_CASE(labels_that_are_no_class_and_not_a_number) {
  auto x = random_floats(4 * 5, "x");
  x[5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> labels{5, 1, -1, 2};
  const device_array<float> logits(x);
  const device_array<std::int32_t> classes_of(labels);
  const device_array<float> gradient(x.size());
  const device_array<double> row_space(12);
  const device_array<double> space(cuda::sum_space);
  const device_array<double> results(3);
  cuda::softmax_cross_entropy({},
                              {4,
                               5,
                               logits.data(),
                               classes_of.data(),
                               {},
                               1,
                               gradient.data(),
                               row_space.data(),
                               space.data()},
                              {results.data(), nullptr}, {results.data() + 1, nullptr},
                              {results.data() + 2, nullptr});
  std::vector<double> expected(x.size());
  const auto cpu = cpu::softmax_cross_entropy<double>(4, 5, as_doubles(x).data(), labels.data(), {},
                                                      1, expected.data(), true);
  check_close(gradient.values(), expected, tolerance, tolerance, "gradient");
  BOOST_TEST(std::isnan(results.values()[0]));
  BOOST_TEST(results.values()[1] == static_cast<double>(cpu.correct));
  BOOST_TEST(results.values()[2] == 4);
}

BOOST_AUTO_TEST_SUITE_END()
