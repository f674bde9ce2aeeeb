#include "actors/model/data_builder.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_builder.hpp"
#include "tests/support/folders.hpp"

#include <filesystem>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(examples)

using namespace troupe;

namespace {

std::filesystem::path examples_folder() {
  return test::source_folder() / "apps/examples";
}

} // namespace

BOOST_AUTO_TEST_CASE(all_are_valid) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator{examples_folder()}) {
    if (entry.path().extension() != ".textproto")
      continue;
    BOOST_TEST_CONTEXT(entry.path()) {
      const auto job = load_job(entry.path());
      BOOST_CHECK_NO_THROW(validate(job));
      BOOST_TEST(job.name() == entry.path().stem().string());
    }
    ++found;
  }
  BOOST_TEST(found >= 3);
}

BOOST_AUTO_TEST_CASE(digits) {
  const auto job = load_job(examples_folder() / "digits_mlp.textproto");
  const auto data = build_data(job);
  BOOST_TEST(data.train->size() == 8000u);
  BOOST_TEST(data.test->size() == 2000u);
  BOOST_TEST(build_model(job.model(), data.train->record()).graph->parameters().size()
             == 784u * 128 + 128 + 1280 + 10);
}

BOOST_AUTO_TEST_SUITE_END()
