#include "actors/model/data_metadata.hpp"

#include "actors/model/model_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/model/example_job.hpp"
#include "tests/support/files.hpp"
#include "tests/support/input_errors.hpp"
#include "tests/support/temporary_directory.hpp"

BOOST_AUTO_TEST_SUITE(data_metadata)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(what_is_done_to_the_data) {
  const temporary_directory folder;
  write_file(folder / "x.csv", bytes_of("a,b,y\n1,10,100\n3,20,300\n"));
  auto job = csv_job((folder / "x.csv").string());
  auto found = metadata_of(build_data(job));
  BOOST_TEST(found.size() == 2u); // without scaling, there is no entry about it
  BOOST_TEST(found.at("features") == R"(["a","b"])");
  apply_override(job, "data.csv.standardize=true");
  found = metadata_of(build_data(job));
  BOOST_TEST(found.at("feature_mean") == "[2.0,15.0]");
  BOOST_TEST(found.at("feature_deviation") == "[1.0,5.0]");
  BOOST_TEST(found.at("target_mean") == "[200.0]");
  BOOST_TEST(found.at("target_deviation") == "[100.0]");
  BOOST_TEST(metadata_of(build_data(digits_job())).size() == 1u);
}

BOOST_AUTO_TEST_CASE(more_names_than_a_file_of_weights_holds) {
  auto data = build_data(digits_job());
  const std::string half(45'000'000, 'x');
  data.feature_names = {half};
  BOOST_TEST(metadata_of(data).at("features").size() == half.size() + 4);
  data.feature_names = {half, half};
  BOOST_TEST(
    contains(error_of([&] { metadata_of(data); }), "use fewer features, or shorter names"));
  data.columns.categories = {{"user", {"a", "b"}}, {"film", {"a"}}};
  BOOST_TEST(contains(error_of([&] { metadata_of(data); }), "Column \"user\" has 2 categories"));
}

BOOST_AUTO_TEST_CASE(stands_in_files_of_weights) {
  layout parameters;
  parameters.add("w", {2});
  const std::vector<float> weights{1, 2};
  const auto bytes = write_model(parameters, weights, {3, "h", {{"feature_mean", "[0.1307]"}}});
  const auto file = parse_safetensors(bytes, "w");
  BOOST_TEST(file.metadata.at("feature_mean") == "[0.1307]");
  BOOST_TEST(file.metadata.at("model_version") == "3");
}

BOOST_AUTO_TEST_SUITE_END()
