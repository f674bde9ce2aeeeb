#include "actors/parameter_server/norm_exchange.hpp"

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <vector>

BOOST_AUTO_TEST_SUITE(norm_exchange)

BOOST_AUTO_TEST_CASE(parts_of_a_step_add_up) {
  troupe::norm_exchange x{3};
  BOOST_TEST(!x.complete(5));
  BOOST_TEST(x.add(5, 5, 2, 4));
  BOOST_TEST(x.add(5, 5, 0, 1));
  BOOST_TEST(x.has(5, 0));
  BOOST_TEST(!x.has(5, 1));
  BOOST_TEST(!x.complete(5));
  BOOST_TEST(x.add(5, 5, 1, 2));
  BOOST_TEST(x.complete(5));
  BOOST_TEST(x.sum(5) == 7);
}

BOOST_AUTO_TEST_CASE(others_may_be_a_step_ahead) {
  troupe::norm_exchange x{2};
  BOOST_TEST(x.add(0, 1, 1, 8));
  BOOST_TEST(!x.add(0, 2, 1, 8));
  BOOST_TEST(!x.complete(0));
  x.add(0, 0, 0, 1);
  x.add(0, 0, 1, 2);
  BOOST_TEST(x.sum(0) == 3);
  x.forget(0);
  BOOST_TEST(!x.complete(0));
  BOOST_TEST(x.has(1, 1));
  x.add(1, 1, 0, 8);
  BOOST_TEST(x.sum(1) == 16);
}

BOOST_AUTO_TEST_CASE(repetitions_change_nothing) {
  troupe::norm_exchange x{2};
  x.add(3, 3, 1, 8);
  BOOST_TEST(x.add(3, 3, 1, 9));
  BOOST_TEST(x.add(3, 2, 1, 9));
  BOOST_TEST(!x.has(2, 1));
  x.add(3, 3, 0, 1);
  BOOST_TEST(x.sum(3) == 9);
  BOOST_TEST(!x.add(3, 3, 2, 1));
}

// The parts of the norm arrive in any order, but all shards must compute the same norm, bit for
// bit.
BOOST_AUTO_TEST_CASE(the_order_of_arrival_does_not_matter) {
  std::vector<double> parts(9);
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i] = 1.0 / static_cast<double>(3 + i * i * i);
  troupe::norm_exchange up{9};
  troupe::norm_exchange down{9};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    up.add(0, 0, i, parts[i]);
    down.add(0, 0, 8 - i, parts[8 - i]);
  }
  BOOST_TEST(up.sum(0) == std::accumulate(parts.begin(), parts.end(), 0.0));
  BOOST_TEST(down.sum(0) == up.sum(0));
}

BOOST_AUTO_TEST_SUITE_END()
