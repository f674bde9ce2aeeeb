#include "messages/packed_floats.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(packed_floats)

namespace {

/// n values with arbitrary upper halves, among them NaN and infinity. The lower halves are 0.
std::vector<float> rounded(std::size_t n) {
  std::vector<float> result(n);
  for (std::size_t i = 0; i < n; ++i)
    result[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 2654435761U) & 0xffff0000U);
  return result;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<std::uint32_t, float>,
                            std::bit_cast<std::uint32_t, float>);
}

} // namespace

BOOST_AUTO_TEST_CASE(rounded_values_take_half_the_bytes) {
  for (const std::size_t n : {2, 3, 63, 64, 65, 1021, 4096, 100'003}) {
    const auto values = rounded(n);
    const auto packed = pack_floats(values);
    BOOST_TEST(packed.size() == packed_bytes(n));
    BOOST_TEST(packed.size() <= 2 * n + n / 512 + 2);
    const auto again = unpack_floats(packed, n);
    BOOST_TEST_REQUIRE(again.has_value());
    BOOST_TEST(same_bits(again->as_floats(), values), n << " values");
  }
}

BOOST_AUTO_TEST_CASE(other_values_keep_all_bits) {
  for (const std::size_t n : {64, 65, 127, 1000, 5000})
    for (const std::size_t odd : {std::size_t{0}, n / 2, n - 1}) {
      auto values = rounded(n);
      values[odd] = std::bit_cast<float>(0x3f8000ffU);
      const auto packed = pack_floats(values);
      if (packed.empty()) { // All blocks keep their lower bits.
        BOOST_TEST(n <= 65U);
        continue;
      }
      BOOST_TEST(packed.size() > packed_bytes(n));
      const auto again = unpack_floats(packed, n);
      BOOST_TEST_REQUIRE(again.has_value());
      BOOST_TEST(same_bits(again->as_floats(), values), n << " values, number " << odd);
    }
}

BOOST_AUTO_TEST_CASE(values_that_are_not_rounded_are_not_packed) {
  BOOST_TEST(pack_floats(std::vector<float>{}).empty());
  BOOST_TEST(pack_floats(std::vector<float>(1000, 0.1F)).empty());
}

BOOST_AUTO_TEST_CASE(wrong_bytes_are_refused) {
  auto values = rounded(1000);
  values[70] = 0.1F;
  const auto good = pack_floats(values);
  BOOST_TEST(unpack_floats(good, 1000).has_value());
  for (const std::size_t n : {0, 1, 63, 64, 936, 999, 1001, 1064, 1 << 20})
    BOOST_TEST(!unpack_floats(good, n).has_value(), n << " values");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, packed_bytes(1000), good.size() - 2, good.size() - 1})
    BOOST_TEST(!unpack_floats(good.slice(0, size), 1000).has_value(), size << " bytes");
  BOOST_TEST(!unpack_floats({}, std::size_t{1} << 62).has_value());
  auto bits = pack_floats(rounded(1000));
  bits.mutable_data()[0] = std::byte{1}; // A block without lower bits claims to have some.
  BOOST_TEST(!unpack_floats(bits, 1000).has_value());
  auto beyond = pack_floats(rounded(1000));
  beyond.mutable_data()[1] = std::byte{0x80}; // Block 15 has 40 values.
  BOOST_TEST(!unpack_floats(beyond, 1000).has_value());
}

BOOST_AUTO_TEST_CASE(payloads_pass_their_mark_on) {
  auto x = payload::floats(100);
  BOOST_TEST(!x.is_rounded());
  x.mark_rounded();
  BOOST_TEST(x.slice_floats(10, 20).is_rounded());
  auto copy = x;
  BOOST_TEST(copy.is_rounded());
  const auto moved = std::move(copy);
  BOOST_TEST(moved.is_rounded());
  x = payload::floats(3);
  BOOST_TEST(!x.is_rounded());
}

BOOST_AUTO_TEST_SUITE_END()
