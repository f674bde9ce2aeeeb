#include "actors/parameter_server/step_aggregator.hpp"

#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(step_aggregator)

namespace {

payload random_gradient(std::size_t n, std::size_t rank) {
  auto result = payload::floats(n);
  std::ranges::copy(random_values(n, "gradient", rank), result.as_mutable_floats().begin());
  return result;
}

std::vector<float> copy_of(std::span<const float> x) {
  return {x.begin(), x.end()};
}

} // namespace

// Gradients that are 0 except in some elements, which are others in each step.
BOOST_AUTO_TEST_CASE(sums_of_some_elements) {
  constexpr std::size_t n = 50;
  const range_list where[] = {{{3, 9}, {40, 41}}, {{8, 12}}, {{0, 1}, {49, 50}}};
  for (const std::size_t ranks : {1, 2, 3}) {
    troupe::step_aggregator sums{ranks, n};
    troupe::step_aggregator whole{ranks, n};
    for (std::size_t step = 0; step < 3; ++step) {
      range_list all;
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto& mine = where[(r + step) % 3];
        const auto values = random_gradient(n, r + step);
        payload some = payload::floats(n);
        std::ranges::fill(some.as_mutable_floats(), 0.0F);
        for (const auto& x : mine)
          std::ranges::copy(values.as_floats().subspan(x.begin, x.size()),
                            some.as_mutable_floats().subspan(x.begin).begin());
        all = unite(all, mine);
        BOOST_TEST(sums.add(r, 5, {some, std::make_shared<range_list>(mine)}));
        BOOST_TEST(whole.add(r, 5, some));
      }
      BOOST_TEST_REQUIRE(sums.touched() != nullptr);
      BOOST_TEST((*sums.touched() == all));
      BOOST_TEST(whole.touched() == nullptr);
      const auto [first, last] = sums.terms();
      const auto found = copy_of(first);
      const auto added = last.empty() ? std::vector<float>(n) : copy_of(last);
      const auto sum = copy_of(sums.sum());
      for (std::size_t i = 0; i < n; ++i) {
        BOOST_TEST(found[i] + added[i] == whole.sum()[i]);
        BOOST_TEST(sum[i] == whole.sum()[i]);
      }
      sums.clear();
      whole.clear();
    }
  }
  // One gradient of which this is not known.
  troupe::step_aggregator mixed{2, n};
  mixed.add(0, 5, {random_gradient(n, 0), std::make_shared<range_list>(where[0])});
  mixed.add(1, 5, random_gradient(n, 1));
  BOOST_TEST(mixed.touched() == nullptr);
}

BOOST_AUTO_TEST_CASE(the_order_of_arrival_does_not_show) {
  constexpr std::size_t n = 1009;
  std::vector<payload> parts;
  std::vector<float> expected(n);
  for (std::size_t r = 0; r < 4; ++r) {
    parts.push_back(random_gradient(n, r));
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = r == 0 ? parts[0].as_floats()[i] : expected[i] + parts[r].as_floats()[i];
  }
  std::vector<std::size_t> order(4);
  std::iota(order.begin(), order.end(), 0);
  std::size_t tried = 0;
  troupe::step_aggregator sums{4, n};
  do {
    for (const auto rank : order) {
      BOOST_TEST(!sums.complete());
      BOOST_TEST(sums.add(rank, rank + 1, parts[rank]));
    }
    BOOST_TEST(sums.complete());
    BOOST_TEST(sums.samples() == 10u);
    const auto [first, last] = sums.terms();
    BOOST_TEST_REQUIRE(first.size() == n);
    BOOST_TEST_REQUIRE(last.size() == n);
    std::vector<float> total(n);
    std::ranges::transform(first, last, total.begin(), std::plus{});
    BOOST_TEST(same_bits(total, expected));
    BOOST_TEST(same_bits(sums.sum(), expected));
    BOOST_TEST(sums.terms().last.empty());
    BOOST_TEST(same_bits(sums.terms().first, expected));
    sums.clear();
    ++tried;
  } while (std::ranges::next_permutation(order).found);
  BOOST_TEST(tried == 24u);
}

BOOST_AUTO_TEST_CASE(ranks_without_samples) {
  constexpr std::size_t n = 101;
  const auto a = random_gradient(n, 1);
  const auto b = random_gradient(n, 2);
  // Tries all ways in which some of three ranks have no data.
  for (unsigned mask = 0; mask < 8; ++mask) {
    troupe::step_aggregator sums{3, n};
    std::vector<float> expected(n, 0.0F);
    std::uint64_t samples = 0;
    for (const std::size_t rank : {2, 0, 1})
      if ((mask >> rank & 1) != 0) {
        const auto& x = rank == 1 ? a : b;
        BOOST_TEST(sums.add(rank, 5, x));
        samples += 5;
        for (std::size_t i = 0; i < n; ++i)
          expected[i] += x.as_floats()[i];
      } else {
        BOOST_TEST(sums.add(rank, 0, {}));
      }
    BOOST_TEST(sums.complete());
    BOOST_TEST(sums.samples() == samples);
    const auto [first, last] = sums.terms();
    BOOST_TEST_REQUIRE(first.size() == n);
    std::vector<float> total(first.begin(), first.end());
    for (std::size_t i = 0; i < last.size(); ++i)
      total[i] += last[i];
    BOOST_TEST(same_bits(total, sums.sum()));
    // Sums in another order, such as b + a + b and b + b + a, differ here by at most two ulps.
    check_close(sums.sum(), std::vector<double>(expected.begin(), expected.end()), 3e-7, 3e-7,
                "mask " + std::to_string(mask));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_counts_once) {
  troupe::step_aggregator sums{2, 3};
  BOOST_TEST(sums.add(0, 4, random_gradient(3, 0)));
  BOOST_TEST(!sums.add(0, 4, random_gradient(3, 1)));
  BOOST_TEST(!sums.complete());
  BOOST_TEST(sums.samples() == 4u);
  BOOST_TEST(sums.add(1, 0, {}));
  BOOST_TEST(!sums.add(1, 1, random_gradient(3, 1)), "nor one without samples");
  BOOST_TEST(same_bits(sums.sum(), random_gradient(3, 0).as_floats()));
}

// Error bound: for any order of additions, the float sum of R terms is within (R - 1) u sum|x| of
// the exact sum, with u = 2^-24 (Higham, 2002, section 4.2). A factor of 1.01 covers the terms in
// u^2. The float64 reference has an error of 2^-29 times this bound.
BOOST_AUTO_TEST_CASE(close_to_float64) {
  for (std::size_t ranks = 1; ranks <= 8; ++ranks)
    for (const std::size_t n : {0, 1, 10'007, 100'003}) {
      troupe::step_aggregator sums{ranks, n};
      std::vector<double> exact(n);
      std::vector<double> magnitude(n);
      for (std::size_t r = ranks; r-- > 0;) {
        const auto x = random_gradient(n, r);
        for (std::size_t i = 0; i < n; ++i) {
          exact[i] += double{x.as_floats()[i]};
          magnitude[i] += std::fabs(double{x.as_floats()[i]});
        }
        BOOST_TEST(sums.add(r, 1, x));
      }
      const auto sum = copy_of(sums.sum());
      BOOST_REQUIRE(sum.size() == n);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double bound = 1.01 * static_cast<double>(ranks - 1) * 0x1p-24 * magnitude[i];
        wrong += !(std::fabs(double{sum[i]} - exact[i]) <= bound) ? 1 : 0;
      }
      BOOST_TEST(wrong == 0u, ranks << " ranks, " << n << " elements");
    }
}

BOOST_AUTO_TEST_CASE(one_rank_changes_nothing) {
  auto x = payload::floats(3);
  const std::vector<float> delicate{-0.0F, std::numeric_limits<float>::denorm_min(),
                                    -std::numeric_limits<float>::infinity()};
  std::ranges::copy(delicate, x.as_mutable_floats().begin());
  troupe::step_aggregator sums{1, 3};
  BOOST_TEST(sums.add(0, 1, x));
  BOOST_TEST(same_bits(sums.sum(), delicate));
}

BOOST_AUTO_TEST_CASE(cleared_parts_are_released) {
  auto x = random_gradient(10, 0);
  troupe::step_aggregator sums{2, 10};
  sums.add(0, 7, x);
  BOOST_TEST(!x.unique());
  sums.clear();
  BOOST_TEST(x.unique());
  BOOST_TEST(sums.samples() == 0u);
  BOOST_TEST(!sums.complete());
  // The sums of the next step begin at 0.
  sums.add(0, 0, {});
  sums.add(1, 0, {});
  BOOST_TEST(same_bits(sums.sum(), std::vector<float>(10)));
}

BOOST_AUTO_TEST_SUITE_END()
