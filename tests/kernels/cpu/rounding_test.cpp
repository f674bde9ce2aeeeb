#include "kernels/cpu/rounding.hpp"

#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(rounding)

BOOST_AUTO_TEST_CASE(trainable_parameters_are_rounded) {
  troupe::layout parameters;
  parameters.add("weight", {7, 3});
  parameters.add("mean", {5}, {}, parameter_kind::state);
  parameters.add("frozen", {2}, {}, parameter_kind::frozen);
  parameters.add("bias", {3});
  const auto n = parameters.size();
  std::vector<float> values;
  for (std::size_t i = 0; i < n; ++i)
    values.push_back(std::sin(static_cast<float>(i + 1)));
  // Each part of the vector is rounded like the whole.
  for (std::size_t begin = 0; begin <= n; ++begin)
    for (std::size_t end = begin; end <= n; ++end) {
      std::vector<float> part(values.begin() + static_cast<std::ptrdiff_t>(begin),
                              values.begin() + static_cast<std::ptrdiff_t>(end));
      std::vector<float> copy(part.size());
      round_to_bfloat16(parameters, {begin, end}, part, copy);
      round_to_bfloat16(parameters, {begin, end}, part);
      BOOST_TEST(part == copy);
      for (std::size_t i = begin; i < end; ++i) {
        const bool trainable = i < 21 || i >= 28;
        const auto x = part[i - begin];
        BOOST_TEST(((std::bit_cast<std::uint32_t>(x) & 0xffffU) == 0) == trainable);
        if (trainable)
          BOOST_TEST(std::abs(x - values[i]) <= std::abs(values[i]) * 0x1p-8F);
        else
          BOOST_TEST(x == values[i]);
      }
    }
}

BOOST_AUTO_TEST_CASE(values_that_are_not_finite) {
  troupe::layout parameters;
  parameters.add("weight", {4});
  const auto infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{std::numeric_limits<float>::quiet_NaN(), infinity, -infinity,
                            std::bit_cast<float>(0x7f800001U)};
  round_to_bfloat16(parameters, {0, 4}, values);
  BOOST_TEST(std::isnan(values[0]));
  BOOST_TEST(values[1] == infinity);
  BOOST_TEST(values[2] == -infinity);
  BOOST_TEST(std::isnan(values[3]));
}

BOOST_AUTO_TEST_SUITE_END()
