#include "kernels/optimizers/schedule.hpp"

#include "kernels/error.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(schedule, *boost::unit_test::tolerance(1e-12))

BOOST_AUTO_TEST_CASE(constant) {
  const learning_rate rate{0.1, 0, constant_rate{}};
  BOOST_TEST(rate.at(0) == 0.1);
  BOOST_TEST(rate.at(7.3) == 0.1);
}

BOOST_AUTO_TEST_CASE(step) {
  const learning_rate rate{0.1, 0, step_rate{2, 0.5}};
  BOOST_TEST(rate.at(1.99) == 0.1);
  BOOST_TEST(rate.at(2) == 0.05);
  BOOST_TEST(rate.at(5) == 0.025);
}

BOOST_AUTO_TEST_CASE(cosine) {
  const learning_rate rate{1.0, 0, cosine_rate{0.2, 10}};
  BOOST_TEST(rate.at(0) == 1.0);
  BOOST_TEST(rate.at(5) == 0.6);
  BOOST_TEST(rate.at(10) == 0.2);
  BOOST_TEST(rate.at(11) == 0.2);
  BOOST_TEST(rate.at(2.5) == 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2);
}

BOOST_AUTO_TEST_CASE(exponential) {
  const learning_rate rate{0.4, 0, exponential_rate{0.25}};
  BOOST_TEST(rate.at(0) == 0.4);
  BOOST_TEST(rate.at(0.5) == 0.2);
  BOOST_TEST(rate.at(2) == 0.025);
}

BOOST_AUTO_TEST_CASE(one_cycle) {
  const learning_rate rate{1.0, 0, one_cycle_rate{0.25, 20, 100, 8}};
  BOOST_TEST(rate.at(0) == 0.05);
  BOOST_TEST(rate.at(1) == (0.05 + 1) / 2);
  BOOST_TEST(rate.at(2) == 1.0);
  BOOST_TEST(rate.at(5) == (1 + 0.0005) / 2);
  BOOST_TEST(rate.at(8) == 0.0005);
  BOOST_TEST(rate.at(9) == 0.0005);
  const learning_rate falling{1.0, 0, one_cycle_rate{0, 20, 100, 8}};
  BOOST_TEST(falling.at(0) == 1.0);
}

BOOST_AUTO_TEST_CASE(warm_up) {
  const learning_rate rate{1.0, 0.5, step_rate{1, 0.1}};
  BOOST_TEST(rate.at(0) == 0.0);
  BOOST_TEST(rate.at(0.125) == 0.25);
  BOOST_TEST(rate.at(0.5) == 1.0);
  BOOST_TEST(rate.at(1) == 0.1);
}

BOOST_AUTO_TEST_CASE(values_without_sense_are_refused) {
  BOOST_CHECK_NO_THROW(check({0.1, 1, cosine_rate{0, 3}}));
  BOOST_CHECK_THROW(check({-0.1, 0, {}}), input_error);
  BOOST_CHECK_THROW(check({NAN, 0, {}}), input_error);
  BOOST_CHECK_THROW(check({0.1, -1, {}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, step_rate{0, 0.1}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, step_rate{1, -0.1}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, exponential_rate{-1}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, one_cycle_rate{1, 25, 100, 1}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, one_cycle_rate{0.3, 0, 100, 1}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, one_cycle_rate{0.3, 25, 0.5, 1}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, one_cycle_rate{0.3, 25, 100, 0}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, cosine_rate{-1, 1}}), input_error);
  BOOST_CHECK_THROW(check({0.1, 0, cosine_rate{0, 0}}), input_error);
}

BOOST_AUTO_TEST_SUITE_END()
