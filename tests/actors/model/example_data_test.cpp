#include "actors/model/data_builder.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_builder.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/support/example_job.hpp"

#include <cmath>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(example_data)

using namespace troupe;

BOOST_AUTO_TEST_CASE(mnist) {
  if (!test::has_data("mnist10k"))
    return;
  const auto mnist = test::example_job("mnist_mlp");
  const auto images = build_data(mnist);
  BOOST_TEST(images.train->size() == 8000u);
  BOOST_TEST(images.test->size() == 2000u);
  BOOST_TEST(build_model(mnist.model(), images.train->record()).graph->parameters().size()
             == 235'146u);
}

BOOST_AUTO_TEST_CASE(advertising) {
  if (!test::has_data("advertising.csv"))
    return;
  const auto advertising = test::example_job("advertising");
  const auto table = build_data(advertising);
  BOOST_TEST(table.train->size() == 200u);
  BOOST_TEST(table.test == table.train);
  BOOST_TEST(is_linear(advertising.model()));
}

BOOST_AUTO_TEST_CASE(advertising_reaches_the_exact_coefficients) {
  if (!test::has_data("advertising.csv"))
    return;
  test::serial_training training{test::example_job("advertising")};
  training.train();
  const auto c = training.coefficients();
  BOOST_REQUIRE(c.size() == 4u);
  BOOST_TEST(std::abs(c[0] / 2.938889 - 1) < 1e-3);
  BOOST_TEST(std::abs(c[1] / 0.045765 - 1) < 1e-3);
  BOOST_TEST(std::abs(c[2] / 0.188530 - 1) < 1e-3);
  BOOST_TEST(std::abs(c[3] + 0.001037) < 1e-4);
}

BOOST_AUTO_TEST_SUITE_END()
