#include "actors/model/data_builder.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_builder.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/support/skip.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(example_data)

using namespace troupe;

namespace {

std::filesystem::path examples_folder() {
  const char* source = std::getenv("TROUPE_SOURCE_DIR");
  return std::filesystem::path{source != nullptr ? source : "."} / "apps/examples";
}

} // namespace

BOOST_AUTO_TEST_CASE(real_data) {
  const char* folder = std::getenv("TROUPE_DATA");
  if (folder == nullptr || !std::filesystem::exists(std::filesystem::path{folder} / "mnist10k")) {
    test::skip("TROUPE_DATA has no mnist10k");
    return;
  }
  const auto mnist = load_job(examples_folder() / "mnist_mlp.textproto");
  const auto images = build_data(mnist);
  BOOST_TEST(images.train->size() == 8000u);
  BOOST_TEST(images.test->size() == 2000u);
  BOOST_TEST(build_model(mnist.model(), images.train->record()).graph->parameters().size()
             == 235'146u);
  const auto advertising = load_job(examples_folder() / "advertising.textproto");
  const auto table = build_data(advertising);
  BOOST_TEST(table.train->size() == 200u);
  BOOST_TEST(table.test == table.train);
  BOOST_TEST(is_linear(advertising.model()));
}

BOOST_AUTO_TEST_CASE(advertising_reaches_the_exact_coefficients) {
  const char* folder = std::getenv("TROUPE_DATA");
  if (folder == nullptr
      || !std::filesystem::exists(std::filesystem::path{folder} / "advertising.csv")) {
    test::skip("TROUPE_DATA has no advertising.csv");
    return;
  }
  test::serial_training training{load_job(examples_folder() / "advertising.textproto")};
  training.train();
  const auto c = training.coefficients();
  BOOST_REQUIRE(c.size() == 4u);
  BOOST_TEST(std::abs(c[0] / 2.938889 - 1) < 1e-3);
  BOOST_TEST(std::abs(c[1] / 0.045765 - 1) < 1e-3);
  BOOST_TEST(std::abs(c[2] / 0.188530 - 1) < 1e-3);
  BOOST_TEST(std::abs(c[3] + 0.001037) < 1e-4);
}

BOOST_AUTO_TEST_SUITE_END()
