#include "kernels/formats/gzip.hpp"

#include "tests/support/input_errors.hpp"

#include <random>

BOOST_AUTO_TEST_SUITE(gzip)

using namespace troupe::test;

namespace {

std::vector<std::byte> noise(std::size_t n) {
  std::mt19937 random{7};
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes)
    b = static_cast<std::byte>(random());
  return bytes;
}

} // namespace

BOOST_AUTO_TEST_CASE(round_trip) {
  for (const std::size_t n : {0, 1, 13, 4096, 100'000}) {
    const auto original = noise(n);
    const auto packed = troupe::gzip(original);
    BOOST_TEST(troupe::is_gzip(packed));
    BOOST_TEST((troupe::gunzip(packed, n, "x") == original));
  }
}

BOOST_AUTO_TEST_CASE(concatenated_members) {
  auto packed = troupe::gzip(bytes_of("one "));
  const auto second = troupe::gzip(bytes_of("two"));
  packed.insert(packed.end(), second.begin(), second.end());
  BOOST_TEST((troupe::gunzip(packed, 100, "x") == bytes_of("one two")));
}

BOOST_AUTO_TEST_CASE(output_is_bounded) {
  const std::vector<std::byte> zeros(10'000'000);
  const auto bomb = troupe::gzip(zeros);
  BOOST_TEST(bomb.size() < 20'000u);
  BOOST_TEST(contains(error_of([&] { troupe::gunzip(bomb, 1000, "bomb.gz"); }),
                      "bomb.gz: decompresses to more than the 1000"));
  BOOST_TEST(contains(error_of([&] { troupe::gunzip(bomb, 9'999'999, "b"); }), "more than"));
  BOOST_TEST(troupe::gunzip(bomb, 10'000'000, "b").size() == zeros.size());
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  const auto packed = troupe::gzip(bytes_of("a text of some length, length, length"));
  const auto accepted =
    survive_hostile_variants(packed, [](auto bytes) { troupe::gunzip(bytes, 1000, "x"); });
  BOOST_TEST(accepted == 0u);
  const std::vector<std::byte> cut(packed.begin(), packed.end() - 3);
  BOOST_TEST(contains(error_of([&] { troupe::gunzip(cut, 1000, "cut.gz"); }), "cut.gz: truncated"));
  auto extended = packed;
  extended.push_back(std::byte{1});
  BOOST_TEST(
    contains(error_of([&] { troupe::gunzip(extended, 1000, "x"); }), "bytes after the gzip data"));
  BOOST_TEST(
    contains(error_of([&] { troupe::gunzip(bytes_of("plain"), 1000, "x"); }), "not a gzip file"));
}

BOOST_AUTO_TEST_SUITE_END()
