#include "kernels/cpu/conversions.hpp"

#include "kernels/cpu/flush_denormals.hpp"
#include "kernels/narrow_float.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#ifdef __F16C__
#include <immintrin.h>
#endif

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint32_t patterns = 1U << 16;

template <class Narrow>
constexpr dtype type_of = std::is_same_v<Narrow, bfloat16> ? dtype::bfloat16 : dtype::float16;

template <class Narrow>
Narrow of_bits(std::uint32_t bits) {
  return Narrow{static_cast<std::uint16_t>(bits)};
}

/// The number that these bits mean, by the definition of the type.
template <class Narrow>
double number_of(std::uint32_t bits) {
  constexpr bool brain = std::is_same_v<Narrow, bfloat16>;
  constexpr int fraction_bits = brain ? 7 : 10;
  constexpr int exponents = brain ? 256 : 32;
  const auto exponent = static_cast<int>(bits >> fraction_bits) % exponents;
  const auto fraction = static_cast<int>(bits) % (1 << fraction_bits);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == exponents - 1)
    return fraction == 0 ? sign * HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  const int shift = std::max(exponent, 1) - (exponents / 2 - 1) - fraction_bits;
  return sign * std::ldexp(fraction + (exponent > 0 ? 1 << fraction_bits : 0), shift);
}

template <class Narrow>
void check_all_patterns() {
  for (std::uint32_t bits = 0; bits < patterns; ++bits) {
    const float x = widened(of_bits<Narrow>(bits));
    const double expected = number_of<Narrow>(bits);
    if (std::isnan(expected)) {
      BOOST_REQUIRE(std::isnan(x));
      // A NaN keeps its sign and becomes a quiet NaN.
      const auto back = rounded_to<Narrow>(x).bits;
      BOOST_REQUIRE_EQUAL(back, bits | (type_of<Narrow> == dtype::bfloat16 ? 0x40U : 0x200U));
      continue;
    }
    BOOST_REQUIRE_EQUAL(static_cast<double>(x), expected);
    BOOST_REQUIRE_EQUAL(std::signbit(x), std::signbit(expected));
    BOOST_REQUIRE_EQUAL(rounded_to<Narrow>(x).bits, bits);
  }
}

/// Checks how numbers between two neighboring 16-bit numbers are rounded. The number in the middle
/// is rounded to the neighbor whose last bit is 0, other numbers to the nearer neighbor.
template <class Narrow>
void check_ties() {
  const std::uint32_t infinite = type_of<Narrow> == dtype::bfloat16 ? 0x7f80 : 0x7c00;
  for (std::uint32_t bits = 0; bits < infinite; ++bits) {
    const double low = number_of<Narrow>(bits);
    const double high = bits + 1 < infinite
      ? number_of<Narrow>(bits + 1)
      : 2 * low - number_of<Narrow>(bits - 1); // the next number if there were no infinity
    const auto middle = static_cast<float>((low + high) / 2);
    if (type_of<Narrow> == dtype::float16 || bits + 1 < infinite)
      BOOST_REQUIRE_EQUAL(static_cast<double>(middle), (low + high) / 2);
    for (const float sign : {1.0F, -1.0F}) {
      const std::uint32_t top = sign < 0 ? 0x8000 : 0;
      const auto rounds_to = [&](float x) { return rounded_to<Narrow>(sign * x).bits; };
      BOOST_REQUIRE_EQUAL(rounds_to(middle), top + bits + bits % 2);
      BOOST_REQUIRE_EQUAL(rounds_to(std::nextafter(middle, 0.0F)), top + bits);
      BOOST_REQUIRE_EQUAL(rounds_to(std::nextafter(middle, HUGE_VALF)), top + bits + 1);
    }
  }
}

/// Floats with all signs, exponents and upper bits, and some lower bits.
std::vector<float> all_kinds() {
  std::vector<float> result;
  for (std::uint32_t high = 0; high < patterns; ++high)
    for (const std::uint32_t low : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x8000U, 0xffffU})
      result.push_back(std::bit_cast<float>(high << 16 | low));
  return result;
}

template <class Narrow>
std::vector<Narrow> narrowed(const std::vector<float>& x) {
  std::vector<Narrow> result(x.size());
  cpu::narrow(type_of<Narrow>, x.size(), x.data(), result.data());
  return result;
}

template <class Narrow>
void check_loops() {
  const auto x = all_kinds();
  const auto narrow = narrowed<Narrow>(x);
  std::vector<float> back(x.size());
  cpu::widen(type_of<Narrow>, x.size(), narrow.data(), back.data());
  std::vector<Narrow> flushing;
  std::vector<float> back_flushing(x.size());
  {
    const cpu::flush_denormals mode;
    flushing = narrowed<Narrow>(x);
    cpu::widen(type_of<Narrow>, x.size(), narrow.data(), back_flushing.data());
  }
  std::vector<double> doubles(x.size());
  cpu::widen(type_of<Narrow>, x.size(), narrow.data(), doubles.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    BOOST_REQUIRE(narrow[i] == rounded_to<Narrow>(x[i]));
    BOOST_REQUIRE(flushing[i] == narrow[i]);
    if (std::isnan(x[i])) {
      BOOST_REQUIRE(std::isnan(back[i]) && std::isnan(back_flushing[i]));
      continue;
    }
    BOOST_REQUIRE_EQUAL(static_cast<double>(back[i]),
                        rounded(type_of<Narrow>, static_cast<double>(x[i])));
    BOOST_REQUIRE_EQUAL(std::bit_cast<std::uint32_t>(back_flushing[i]),
                        std::bit_cast<std::uint32_t>(back[i]));
    BOOST_REQUIRE_EQUAL(doubles[i], static_cast<double>(back[i]));
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(conversions)

BOOST_AUTO_TEST_CASE(all_patterns_there_and_back) {
  check_all_patterns<bfloat16>();
  check_all_patterns<float16>();
}

BOOST_AUTO_TEST_CASE(ties_go_to_even) {
  check_ties<bfloat16>();
  check_ties<float16>();
}

BOOST_AUTO_TEST_CASE(known_numbers) {
  BOOST_TEST(rounded_to<float16>(65519.99F).bits == 0x7bff);
  BOOST_TEST(rounded_to<float16>(65520.0F).bits == 0x7c00);
  BOOST_TEST(rounded_to<float16>(1.0F).bits == 0x3c00);
  BOOST_TEST(rounded_to<float16>(std::ldexp(1.0F, -24)).bits == 1);
  BOOST_TEST(rounded_to<float16>(std::ldexp(1.0F, -25)).bits == 0);
  BOOST_TEST(rounded_to<float16>(std::ldexp(-1.5F, -25)).bits == 0x8001);
  BOOST_TEST(rounded_to<bfloat16>(1.0F).bits == 0x3f80);
  BOOST_TEST(rounded_to<bfloat16>(3.4e38F).bits == 0x7f80);
  BOOST_TEST(rounded_to<bfloat16>(-0.0F).bits == 0x8000);
  // A NaN whose only set bits are in the lower 16 bits of the float32 must not become an infinity.
  BOOST_TEST(rounded_to<bfloat16>(std::bit_cast<float>(0x7f800001U)).bits == 0x7fc0);
  BOOST_TEST(rounded_to<float16>(std::bit_cast<float>(0xff800001U)).bits == 0xfe00);
}

// Loops over arrays give the same bits as single conversions, even if the processor treats denormal
// float32 numbers as zero.
BOOST_AUTO_TEST_CASE(loops_have_the_bits_of_single_conversions) {
  check_loops<bfloat16>();
  check_loops<float16>();
}

#ifdef __F16C__
BOOST_AUTO_TEST_CASE(float16_has_the_bits_of_the_processor) {
  for (const float x : all_kinds())
    BOOST_REQUIRE_EQUAL(rounded_to<float16>(x).bits, _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}
#endif

BOOST_AUTO_TEST_SUITE_END()
