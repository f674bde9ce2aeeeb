#include "actors/replica/replica_check.hpp"

#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <bit>
#include <set>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(replica_check)

namespace {

std::vector<float> numbers(std::size_t count) {
  std::vector<float> result;
  for (const double x : random_values(count, "weights", 1))
    result.push_back(static_cast<float>(x));
  return result;
}

std::optional<replica_difference>
compare(const std::vector<std::vector<std::uint64_t>>& hashes_by_rank) {
  const auto ranks = hashes_by_rank.size();
  std::vector<float> sums(check_elements(ranks, hashes_by_rank[0].size()), 0);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<float> own(sums.size(), 0);
    put_hashes(hashes_by_rank[r], r, own);
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += own[i];
  }
  return compare_hashes(sums, ranks);
}

} // namespace

// The hash depends on each bit, also in the last numbers, which do not fill a whole round of the
// hash.
BOOST_AUTO_TEST_CASE(each_bit_counts) {
  for (const std::size_t size : {1, 2, 7, 8, 9, 31, 32, 33}) {
    auto values = numbers(size);
    std::set<std::uint64_t> seen{hash_of_bits(values)};
    for (auto& x : values)
      for (int bit = 0; bit < 32; ++bit) {
        const auto before = x;
        x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ 1U << bit);
        seen.insert(hash_of_bits(values));
        x = before;
      }
    BOOST_TEST(seen.size() == 32 * size + 1);
  }
}

BOOST_AUTO_TEST_CASE(length_and_order_count) {
  std::set<std::uint64_t> seen;
  for (std::size_t size = 0; size < 100; ++size)
    seen.insert(hash_of_bits(std::vector<float>(size, 0)));
  BOOST_TEST(seen.size() == 100U);
  auto values = numbers(64);
  const auto before = hash_of_bits(values);
  std::swap(values[3], values[11]);
  BOOST_TEST(hash_of_bits(values) != before);
  BOOST_TEST(hash_of_bits(std::vector<float>{0.0F}) != hash_of_bits(std::vector<float>{-0.0F}));
}

BOOST_AUTO_TEST_CASE(comparing_ranks) {
  constexpr std::uint64_t a = 0xFFFF'FFFF'FFFF'FFFF;
  constexpr std::uint64_t b = a ^ 1;
  constexpr std::uint64_t c = a ^ std::uint64_t{1} << 63;
  using ranks = std::vector<std::size_t>;
  BOOST_TEST(!compare({{a, b}, {a, b}}));
  BOOST_TEST(!compare({{a}, {a}, {a}}));
  const auto check = [](const auto& x, std::size_t bucket, const ranks& expected, bool majority) {
    BOOST_TEST_REQUIRE(x.has_value());
    BOOST_TEST(x->bucket == bucket);
    BOOST_TEST(x->ranks == expected);
    BOOST_TEST(x->majority == majority);
  };
  check(compare({{a, a}, {a, b}, {a, a}}), 1, {1}, true);
  check(compare({{a, a}, {a, a}, {c, b}}), 0, {2}, true);
  check(compare({{a}, {b}}), 0, {0, 1}, false);
  check(compare({{a}, {b}, {a}, {b}}), 0, {0, 1, 2, 3}, false);
  check(compare({{a}, {b}, {c}}), 0, {0, 1, 2}, false);
  check(compare({{b}, {a}, {a}, {c}, {a}}), 0, {0, 3}, true);
}

BOOST_AUTO_TEST_SUITE_END()
