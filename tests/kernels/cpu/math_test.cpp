#include "kernels/cpu/math.hpp"

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/losses.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(math)

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

/// The largest relative error of f over [low, high], compared with `reference`, in units of the
/// last place of a float.
template <class F, class R>
double worst_error(float low, float high, F f, R reference) {
  double worst = 0;
  for (int i = 0; i <= 400000; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / 400000;
    const double expected = reference(static_cast<double>(x));
    const double error =
      std::fabs(static_cast<double>(f(x)) - expected) / (std::fabs(expected) * 0x1p-23 + 1e-44);
    if (!(error <= worst))
      worst = error;
  }
  return worst;
}

} // namespace

// Near a zero, the relative error would be large, but the absolute error is small.
BOOST_AUTO_TEST_CASE(accuracy_of_sines) {
  for (const float range : {1.0F, 10.0F, 1e4F, 1e8F, 9e14F})
    for (int i = -100000; i <= 100000; ++i) {
      const float x = range * static_cast<float>(i) / 100000;
      const auto wide = static_cast<double>(x);
      const auto close = [&](float found, double expected) {
        const double error = std::fabs(static_cast<double>(found) - expected);
        return error <= 2 * 0x1p-23 * std::fabs(expected) + (range > 1e9F ? 1e-7 : 1e-16);
      };
      BOOST_TEST_REQUIRE(close(cpu::sine(x), std::sin(wide)), "sin " << x);
      BOOST_TEST_REQUIRE(close(cpu::cosine(x), std::cos(wide)), "cos " << x);
    }
  for (const float x : {inf, -inf, quiet_nan}) {
    BOOST_TEST(std::isnan(cpu::sine(x)));
    BOOST_TEST(std::isnan(cpu::cosine(x)));
  }
  BOOST_TEST(cpu::sine(3e38F) == 0.0F);
  BOOST_TEST(cpu::cosine(-3e38F) == 1.0F);
}

BOOST_AUTO_TEST_CASE(accuracy) {
  auto exp = [](double x) { return std::exp(x); };
  auto tanh = [](double x) { return std::tanh(x); };
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  BOOST_TEST(worst_error(
               -87.3F, 88.7F, [](float x) { return cpu::exp(x); }, exp)
             < 2);
  BOOST_TEST(worst_error(
               -10, 10, [](float x) { return cpu::tanh(x); }, tanh)
             < 2);
  BOOST_TEST(worst_error(
               -1e-3F, 1e-3F, [](float x) { return cpu::tanh(x); }, tanh)
             < 2);
  BOOST_TEST(worst_error(
               -87, 90, [](float x) { return cpu::sigmoid(x); }, sigmoid)
             < 2);
  auto log = [](double x) { return std::log(x); };
  BOOST_TEST(worst_error(
               1e-30F, 1e-3F, [](float x) { return cpu::log(x); }, log)
             < 2);
  BOOST_TEST(worst_error(
               1e-3F, 0.999F, [](float x) { return cpu::log(x); }, log)
             < 2);
  BOOST_TEST(worst_error(
               1.001F, 1e4F, [](float x) { return cpu::log(x); }, log)
             < 2);
  auto erf = [](double x) { return std::erf(x); };
  BOOST_TEST(worst_error(
               -6, 6, [](float x) { return cpu::erf(x); }, erf)
             < 6);
  auto erfc = [](double x) { return std::erfc(x); };
  BOOST_TEST(worst_error(
               -6, 9.19F, [](float x) { return cpu::erfc(x); }, erfc)
             < 5);
  auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  BOOST_TEST(worst_error(
               -80, 80, [](float x) { return cpu::softplus(x); }, softplus)
             < 4);
}

BOOST_AUTO_TEST_CASE(special_values) {
  BOOST_TEST(cpu::exp(0.0F) == 1.0F);
  BOOST_TEST(cpu::log(1.0F) == 0.0F);
  BOOST_TEST(cpu::log(0.0F) == -inf);
  BOOST_TEST(cpu::log(inf) == inf);
  BOOST_TEST(std::isnan(cpu::log(-1.0F)));
  BOOST_TEST(std::isnan(cpu::log(quiet_nan)));
  BOOST_TEST(cpu::erf(inf) == 1.0F, boost::test_tools::tolerance(3e-7F));
  BOOST_TEST(std::isnan(cpu::erf(quiet_nan)));
  BOOST_TEST(cpu::erfc(0.0F) == 1.0F);
  BOOST_TEST(cpu::erfc(inf) == 0.0F);
  BOOST_TEST(cpu::erfc(-inf) == 2.0F);
  BOOST_TEST(std::isnan(cpu::erfc(quiet_nan)));
  BOOST_TEST(cpu::greater(quiet_nan, 1.0F) == 0.0F);
  BOOST_TEST(cpu::greater(1.0F, quiet_nan) == 0.0F);
  BOOST_TEST(cpu::softplus(inf) == inf);
  BOOST_TEST(cpu::softplus(-inf) == 0.0F);
  BOOST_TEST(std::isnan(cpu::softplus(quiet_nan)));
  BOOST_TEST(cpu::exp(-inf) == 0.0F);
  BOOST_TEST(cpu::exp(inf) == inf);
  BOOST_TEST(cpu::exp(1000.0F) == inf);
  BOOST_TEST(cpu::exp(-1000.0F) == 0.0F);
  BOOST_TEST(std::isnan(cpu::exp(quiet_nan)));
  BOOST_TEST(cpu::tanh(inf) == 1.0F);
  BOOST_TEST(cpu::tanh(-inf) == -1.0F);
  BOOST_TEST(std::isnan(cpu::tanh(quiet_nan)));
  BOOST_TEST(cpu::sigmoid(inf) == 1.0F);
  BOOST_TEST(cpu::sigmoid(-inf) == 0.0F);
  BOOST_TEST(std::isnan(cpu::sigmoid(quiet_nan)));
  BOOST_TEST(cpu::relu(inf) == inf);
  BOOST_TEST(cpu::relu(-inf) == 0.0F);
  BOOST_TEST(std::isnan(cpu::relu(quiet_nan)));
  BOOST_TEST(std::isnan(cpu::relu_gradient(1.0F, quiet_nan)));
}

BOOST_AUTO_TEST_CASE(exp_of_negative_has_the_bits_of_exp) {
  int differences = 0;
  for (int i = 0; i <= 400000; ++i) {
    const float x = -100 * static_cast<float>(i) / 400000;
    differences += std::bit_cast<std::uint32_t>(cpu::exp_of_negative(x))
        != std::bit_cast<std::uint32_t>(cpu::exp(x))
      ? 1
      : 0;
  }
  BOOST_TEST(differences == 0);
  BOOST_TEST(cpu::exp_of_negative(-1e30F) == 0);
  BOOST_TEST(cpu::exp_of_negative(-inf) == 0);
  BOOST_TEST(std::isnan(cpu::exp_of_negative(quiet_nan)));
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_position) {
  const std::size_t n = 1003;
  const auto random = random_values(n, "x");
  const std::vector<float> x(random.begin(), random.end());
  for (auto op : {operation::tanh, operation::sigmoid, operation::relu, operation::scale}) {
    const auto run = [&](std::size_t count, const float* from, float* to) {
      cpu::loop_of<float>(op)(count, from, nullptr, nullptr, 0.3F, to);
    };
    std::vector<float> all(n);
    run(n, x.data(), all.data());
    std::vector<float> one(n);
    for (std::size_t i = 0; i < n; ++i)
      run(1, x.data() + i, one.data() + i);
    BOOST_TEST(same_bits(all, one));
    guarded<float> shifted(n, 3);
    std::ranges::copy(x, shifted.data());
    run(n, shifted.data(), shifted.data());
    BOOST_TEST(same_bits(shifted.get(), all));
    BOOST_TEST(shifted.intact());
  }
}

BOOST_AUTO_TEST_CASE(softmax_of_large_and_broken_logits) {
  const std::vector<float> x{1000, 1001, -1000, quiet_nan, 0, 1, inf, 0, 0, -inf, 0, 0};
  std::vector<float> y(x.size());
  cpu::softmax<float>(4, 3, x.data(), y.data());
  check_close(std::span(y).first(3), std::vector<double>{0.2689414213699951, 0.7310585786300049, 0},
              1e-6, 0, "large");
  for (std::size_t i = 3; i < 6; ++i)
    BOOST_TEST(std::isnan(y[i]));
  BOOST_TEST(std::isnan(y[6]));
  check_close(std::span(y).subspan(9), std::vector<double>{0, 0.5, 0.5}, 1e-6, 0, "-infinity");
}

BOOST_AUTO_TEST_CASE(cross_entropy_of_broken_rows) {
  const std::vector<float> z{1, 2, 3, 1, quiet_nan, 3, 1, 2, 3, 1, 2, 3, 3, 3, 1};
  const std::vector<std::int32_t> good{2, 2, 0, 2, 0};
  std::vector<float> gradient(z.size());
  auto result =
    cpu::softmax_cross_entropy<float>(5, 3, z.data(), good.data(), {}, 1, gradient.data(), true);
  BOOST_TEST(std::isnan(result.loss));
  BOOST_TEST(result.correct
             == 3U); // the row with NaN is wrong; if logits are equal, the first one counts
  BOOST_TEST(std::isfinite(gradient[0]));
  BOOST_TEST(std::isnan(gradient[3]));
  for (std::int32_t bad : {-1, 3, std::numeric_limits<std::int32_t>::min()}) {
    const std::vector<std::int32_t> labels{2, bad};
    const std::vector<float> two{1, 2, 3, 1, 2, 3};
    result = cpu::softmax_cross_entropy<float>(2, 3, two.data(), labels.data(), {}, 1,
                                               gradient.data(), true);
    BOOST_TEST(std::isnan(result.loss));
    BOOST_TEST(result.correct == 1U);
    BOOST_TEST(std::isnan(gradient[4]));
  }
}

BOOST_AUTO_TEST_SUITE_END()
