#include "kernels/cpu/reduce.hpp"

#include "kernels/range.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<float> values(std::size_t n, const char* name) {
  const auto x = random_values(n, name);
  return {x.begin(), x.end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(reduce)

BOOST_AUTO_TEST_CASE(sums_are_exact_float_sums) {
  for (std::size_t n : {0, 1, 7, 8, 9, 4099}) {
    const auto a = values(n, "a");
    const auto b = values(n, "b");
    std::vector<float> expected(n);
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = static_cast<float>(double{a[i]} + double{b[i]});
    for (std::size_t offset : {0, 1, 5}) {
      guarded<float> out(n, offset);
      add(a, b, out.get());
      BOOST_TEST(same_bits(out.get(), expected));
      std::ranges::copy(a, out.data());
      accumulate(out.get(), b);
      BOOST_TEST(same_bits(out.get(), expected));
      add(a, b, out.get());
      multiply(out.get(), 0.5F);
      BOOST_TEST(out.intact());
      for (std::size_t i = 0; i < n; ++i)
        BOOST_REQUIRE(out.get()[i] == expected[i] * 0.5F);
    }
    auto in_place = a;
    add(in_place, b, in_place);
    BOOST_TEST(same_bits(in_place, expected));
  }
}

// Denormal numbers count as zero, whatever the floating-point mode of the thread is. Updates of
// weights do the same.
BOOST_AUTO_TEST_CASE(denormal_numbers_count_as_zero) {
  constexpr float denormal = 9e-39F;
  constexpr float least = std::numeric_limits<float>::min();
  for (std::size_t n : {1, 8, 31}) {
    const std::vector<float> tiny(n, denormal);
    const std::vector<float> small(n, least);
    const std::vector<float> zeros(n, 0.0F);
    std::vector<float> out(n, -1.0F);
    add(tiny, small, out);
    BOOST_TEST(same_bits(out, small));
    accumulate(out, tiny);
    BOOST_TEST(same_bits(out, small));
    add(std::vector<float>(n, 1.5F * least), std::vector<float>(n, -least), out);
    BOOST_TEST(same_bits(out, zeros));
    std::vector<double> doubles(n, -1.0);
    add(std::vector<double>(n, 1e-310), std::vector<double>(n, 1e-310), doubles);
    BOOST_TEST(std::ranges::count(doubles, 0.0) == static_cast<std::ptrdiff_t>(n));
  }
}

BOOST_AUTO_TEST_CASE(sums_of_doubles_are_exact_double_sums) {
  for (std::size_t n : {0, 1, 7, 8, 9, 4099}) {
    const auto a = random_values(n, "a");
    const auto b = random_values(n, "b");
    guarded<double> out(n, 3);
    add(a, b, out.get());
    BOOST_TEST(out.intact());
    for (std::size_t i = 0; i < n; ++i)
      BOOST_REQUIRE(out.get()[i] == a[i] + b[i]);
  }
}

BOOST_AUTO_TEST_CASE(finite_or_not) {
  for (std::size_t n : {1, 17, 1000}) {
    std::vector<float> x(n, std::numeric_limits<float>::max());
    BOOST_TEST(all_finite(x));
    for (float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      x[n / 2] = bad;
      BOOST_TEST(!all_finite(x));
    }
  }
  BOOST_TEST(all_finite({}));
}

BOOST_AUTO_TEST_CASE(sizes_must_fit) {
  std::vector<float> three(3);
  std::vector<float> four(4);
  BOOST_CHECK_THROW(add(three, four, three), std::invalid_argument);
  BOOST_CHECK_THROW(accumulate(three, four), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
