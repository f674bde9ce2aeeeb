#include "actors/model/job_file.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/support/folders.hpp"

#include <boost/test/unit_test.hpp>

// Trains the example jobs in a plain loop without actors. It must reach the results that the
// examples promise.
BOOST_AUTO_TEST_SUITE(example_training)

using namespace troupe;

namespace {

proto::Job example(const std::string& name) {
  return load_job(test::source_folder() / "apps/examples" / name);
}

} // namespace

// Trains on a small part of the example's data, to save time. Measured accuracy: 87.2 to 88.2 %
// over five seeds.
BOOST_AUTO_TEST_CASE(digits_are_learned) {
  auto job = example("digits_mlp.textproto");
  apply_override(job, "data.digits={ train: 2000 test: 500 }");
  apply_override(job, "epochs=8");
  test::serial_training training{job};
  BOOST_TEST(training.accuracy() < 0.3);
  training.train();
  BOOST_TEST(training.accuracy() > 0.85);
}

BOOST_AUTO_TEST_SUITE_END()
