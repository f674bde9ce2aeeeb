#include "kernels/formats/idx.hpp"

#include "tests/support/input_errors.hpp"

#include <numeric>
#include <utility>

BOOST_AUTO_TEST_SUITE(idx)

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<std::byte> sample(std::vector<std::uint64_t> shape, std::size_t n) {
  std::vector<std::uint8_t> values(n);
  std::iota(values.begin(), values.end(), std::uint8_t{1});
  return write_idx_u8(shape, values);
}

std::vector<std::byte> raw(std::initializer_list<int> bytes) {
  std::vector<std::byte> result;
  for (const int b : bytes)
    result.push_back(static_cast<std::byte>(b));
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(round_trip) {
  const std::vector<std::pair<std::vector<std::uint64_t>, std::size_t>> cases{
    {{0}, 0}, {{1}, 1}, {{7}, 7}, {{2, 3, 4}, 24}, {{3, 0, 4}, 0}, {{1, 1, 1, 1, 5}, 5}};
  for (const auto& [shape, n] : cases) {
    const auto bytes = sample(shape, n);
    const auto array = parse_idx(bytes, "x");
    BOOST_TEST(array.shape == shape);
    BOOST_TEST((array.type == idx_type::u8));
    BOOST_TEST(array.values.size() == n);
    BOOST_TEST((n == 0 || array.values.back() == static_cast<std::byte>(n)));
    BOOST_TEST((n == 0 || array.values.data() == bytes.data() + bytes.size() - n));
  }
}

BOOST_AUTO_TEST_CASE(element_types) {
  const auto f64 = raw({0, 0, 0x0e, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8});
  BOOST_TEST(parse_idx(f64, "x").values.size() == 8u);
  BOOST_TEST(contains(error_of([&] { parse_idx_u8(f64, 1, "x"); }), "expected unsigned bytes"));
  BOOST_TEST(contains(error_of([&] {
                        parse_idx(raw({0, 0, 0x0a, 1, 0, 0, 0, 0}), "x");
                      }),
                      "not an IDX file"));
}

BOOST_AUTO_TEST_CASE(errors) {
  BOOST_TEST(contains(error_of([&] { parse_idx({}, "empty"); }), "empty: truncated"));
  BOOST_TEST(contains(error_of([&] { parse_idx(raw({0, 0, 8, 0}), "x"); }), "without dimensions"));
  const auto image = sample({2, 3, 4}, 24);
  BOOST_TEST(contains(error_of([&] { parse_idx_u8(image, 1, "l"); }),
                      "l: expected 1 dimension (labels), found shape (2, 3, 4)"));
  auto cut = image;
  cut.pop_back();
  BOOST_TEST(contains(error_of([&] { parse_idx(cut, "cut"); }),
                      "cut: truncated: shape (2, 3, 4) takes 24 bytes of values, the file has 23"));
  cut.resize(image.size() + 1);
  BOOST_TEST(contains(error_of([&] { parse_idx(cut, "x"); }), "too long"));
  BOOST_TEST(
    contains(error_of([] { write_idx_u8(std::vector<std::uint64_t>{2}, {}); }), "do not fill"));
}

BOOST_AUTO_TEST_CASE(hostile_input) {
  const auto bytes = sample({2, 3, 2}, 12);
  const auto parse = [](auto b) { parse_idx(b, "x"); };
  BOOST_TEST(survive_hostile_variants(bytes, parse) == 0u);
  // A header that claims 2^64 elements (2^32 per dimension) is refused before memory is allocated.
  auto huge = raw({0, 0, 0x0e, 3});
  huge.resize(16, std::byte{0xff});
  BOOST_TEST(contains(error_of([&] { parse_idx(huge, "x"); }), "larger than any file"));
  BOOST_TEST(contains(error_of([&] {
                        parse_idx(raw({0, 0, 8, 255}), "x");
                      }),
                      "header of 255 dimensions"));
  // One dimension is 0, so there are no elements. The product of the other dimensions must not
  // overflow.
  auto zero = raw({0, 0, 0x0e, 4, 0, 0, 0, 0});
  zero.resize(20, std::byte{0xff});
  BOOST_TEST(parse_idx(zero, "x").values.empty());
}

BOOST_AUTO_TEST_SUITE_END()
