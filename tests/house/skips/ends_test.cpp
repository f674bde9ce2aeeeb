#include "tests/support/skip.hpp"

#include <iostream>

#include <boost/test/unit_test.hpp>

using troupe::test::skip;

BOOST_AUTO_TEST_SUITE(passes)

BOOST_AUTO_TEST_CASE(says_skipped) {
  std::cout << "skipped: only a word\n";
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(skips)

BOOST_AUTO_TEST_CASE(skips) {
  skip("nothing is here");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(skips_and_fails)

BOOST_AUTO_TEST_CASE(skips) {
  skip("nothing is here");
}

BOOST_AUTO_TEST_CASE(fails) {
  BOOST_TEST(false);
}

BOOST_AUTO_TEST_SUITE_END()

// Two entries of CTest: the case that may skip has its own entry.
BOOST_AUTO_TEST_SUITE(mixed)

BOOST_AUTO_TEST_CASE(passes) {
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_CASE(skips) {
  skip("nothing is here");
}

BOOST_AUTO_TEST_SUITE_END()
