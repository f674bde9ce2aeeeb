#include "kernels/random.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(random_streams)

// These numbers must never change, because all training runs depend on them.
BOOST_AUTO_TEST_CASE(streams_are_the_same_everywhere) {
  random_stream a(1);
  BOOST_TEST(a.next() == 0xcfc5d07f6f03c29bU);
  random_stream b(1, "dense_1.weight");
  const double x = b.uniform();
  random_stream c(1, {2, 3});
  const double y = c.normal();
  BOOST_TEST(x == 0x1.0f66dac867cacp-2);
  BOOST_TEST(y == 0x1.7b7fa19cebe40p-5);
}

BOOST_AUTO_TEST_CASE(names_make_different_streams) {
  std::vector<std::uint64_t> first;
  for (auto name : {"", "a", "b", "ab", "ba"})
    first.push_back(random_stream(1, name).next());
  for (std::uint64_t i = 0; i < 20; ++i)
    first.push_back(random_stream(1, {i}).next());
  first.push_back(random_stream(1, {0, 1}).next());
  first.push_back(random_stream(1, {1, 0}).next());
  first.push_back(random_stream(2, {1, 0}).next());
  std::ranges::sort(first);
  BOOST_TEST((std::ranges::adjacent_find(first) == first.end()));
}

BOOST_AUTO_TEST_CASE(uniform_and_normal_moments) {
  random_stream stream(7);
  const int n = 200000;
  double sum = 0;
  double squares = 0;
  double uniforms = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.normal();
    sum += x;
    squares += x * x;
    const double u = stream.uniform();
    BOOST_REQUIRE((u >= 0 && u < 1));
    uniforms += u;
  }
  // Tolerance: five standard errors.
  BOOST_TEST(std::fabs(sum / n) < 5 / std::sqrt(n));
  BOOST_TEST(std::fabs(squares / n - 1) < 5 * std::sqrt(2.0 / n));
  BOOST_TEST(std::fabs(uniforms / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
}

BOOST_AUTO_TEST_CASE(bounded_integers_are_even) {
  random_stream stream(3);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i)
    ++counts[stream.below(7)];
  for (int count : counts)
    BOOST_TEST(std::abs(count - 10000) < 500);
  BOOST_TEST(stream.below(1) == 0U);
}

BOOST_AUTO_TEST_CASE(shuffle_permutes) {
  std::vector<int> x(1000);
  std::iota(x.begin(), x.end(), 0);
  auto y = x;
  random_stream(5).shuffle(std::span<int>(y));
  BOOST_TEST(x != y);
  std::ranges::sort(y);
  BOOST_TEST(x == y);
  random_stream(5).shuffle(std::span<int>());
}

BOOST_AUTO_TEST_SUITE_END()
