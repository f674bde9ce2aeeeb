#include "kernels/data/permutation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(permutation)

namespace {

std::vector<std::uint64_t> whole(const troupe::permutation& order) {
  std::vector<std::uint64_t> records(order.size());
  order.fill(0, records);
  return records;
}

} // namespace

BOOST_AUTO_TEST_CASE(every_record_once) {
  for (const std::uint64_t n : {0, 1, 2, 3, 5, 15, 16, 17, 31, 200, 1000, 8000, 65'536, 65'537}) {
    auto records = whole({n, 1, 0});
    std::ranges::sort(records);
    std::vector<std::uint64_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0U);
    BOOST_TEST((records == expected), "n = " << n);
  }
}

BOOST_AUTO_TEST_CASE(slices_agree_with_single_positions) {
  const troupe::permutation order{1000, 7, 3};
  std::vector<std::uint64_t> slice(37);
  order.fill(500, slice);
  for (std::size_t i = 0; i < slice.size(); ++i)
    BOOST_TEST(slice[i] == order.at(500 + i));
  const troupe::permutation again{1000, 7, 3};
  BOOST_TEST(again.at(42) == order.at(42));
}

BOOST_AUTO_TEST_CASE(seed_and_epoch_matter) {
  BOOST_TEST((whole({1000, 1, 0}) != whole({1000, 1, 1})));
  BOOST_TEST((whole({1000, 1, 0}) != whole({1000, 2, 0})));
  BOOST_TEST((whole({1000, 1, 1}) != whole({1000, 2, 0})));
}

// Each of n records has the same probability to be the first (or last) of an epoch: a chi-square
// test over 20,000 epochs. The bound is the mean plus five standard deviations of the chi-square
// distribution with n - 1 degrees of freedom. The epochs are fixed, so the test never fails by
// chance.
BOOST_AUTO_TEST_CASE(positions_are_uniform) {
  constexpr int epochs = 20'000;
  for (const std::uint64_t n : {2, 3, 7, 16, 50}) {
    for (const std::uint64_t position : {std::uint64_t{0}, n - 1}) {
      std::vector<double> count(n);
      for (int epoch = 0; epoch < epochs; ++epoch)
        ++count[troupe::permutation{n, 5, static_cast<std::uint64_t>(epoch)}.at(position)];
      const double expected = static_cast<double>(epochs) / static_cast<double>(n);
      double chi2 = 0;
      for (const double c : count)
        chi2 += (c - expected) * (c - expected) / expected;
      const double freedom = static_cast<double>(n) - 1;
      BOOST_TEST(chi2 < freedom + 5 * std::sqrt(2 * freedom), "n = " << n << ", chi2 = " << chi2);
    }
  }
}

// Records that are neighbors in the data are seldom neighbors in an epoch. In a random order of n
// records, this happens to about 2 pairs.
BOOST_AUTO_TEST_CASE(neighbours_part) {
  const auto records = whole({10'000, 3, 0});
  int together = 0;
  for (std::size_t i = 1; i < records.size(); ++i)
    together += records[i] == records[i - 1] + 1 || records[i - 1] == records[i] + 1 ? 1 : 0;
  BOOST_TEST(together < 12);
}

BOOST_AUTO_TEST_CASE(large_sizes) {
  const troupe::permutation order{std::uint64_t{1} << 62, 1, 0};
  BOOST_TEST(order.at(0) < order.size());
  BOOST_TEST(order.at(order.size() - 1) < order.size());
  const troupe::permutation largest{~std::uint64_t{0}, 1, 0};
  BOOST_TEST(largest.at(5) != largest.at(6));
}

// These numbers must never change. Otherwise, a repeated run would use another order.
BOOST_AUTO_TEST_CASE(fixed_values) {
  std::vector<std::uint64_t> first(8);
  troupe::permutation{1000, 1, 0}.fill(0, first);
  BOOST_TEST(first == (std::vector<std::uint64_t>{840, 918, 220, 375, 912, 261, 233, 977}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
