#include "actors/model/device_placement.hpp"

#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(device_placement)

BOOST_AUTO_TEST_CASE(names) {
  const auto one = parse_device("/job:worker/task:3/device:GPU:1");
  BOOST_TEST((one.worker == 3U));
  BOOST_TEST(to_string(one.device) == "GPU:1");
  const auto all = parse_device("/job:worker/task:*/device:CPU:0");
  BOOST_TEST(!all.worker);
  BOOST_TEST(to_string(all.device) == "CPU:0");
}

BOOST_AUTO_TEST_CASE(bad_names) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { parse_device(text); });
  };
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
         {"", "does not begin with a job"},
         {"GPU:0", "does not begin with a job"},
         {"/job:worker", "does not say which task"},
         {"/job:gardener/task:0/device:GPU:0", "an unknown job, \"gardener\""},
         {"/job:workers/task:0/device:GPU:0", "an unknown job, \"workers\""},
         {"/job:ps/task:0/device:GPU:0", "only computes on the CPU"},
         {"/job:coordinator/task:0/device:GPU:0", "only computes on the CPU"},
         {"/job:worker/task:x/device:GPU:0", "neither a number nor *"},
         {"/job:worker/task:-1/device:GPU:0", "neither a number nor *"},
         {"/job:worker/task:4294967296/device:GPU:0", "neither a number nor *"},
         {"/job:worker/task:0", "no device of a known kind"},
         {"/job:worker/task:0/device:TPU:0", "no device of a known kind"},
         {"/job:worker/task:0/device:GPU:", "the number of a device"},
         {"/job:worker/task:0/device:GPU:0 ", "the number of a device"},
         {"/job:worker/task:0/device:CPU:1", "a second CPU"}}) {
    BOOST_TEST(contains(refusal(text), what));
    BOOST_TEST(contains(refusal(text), "expected /job:worker/task:N/device:GPU:N"));
  }
}

BOOST_AUTO_TEST_CASE(the_last_entry_applies) {
  const auto job = example_job("digits_mlp",
                               {"device[0]=/job:worker/task:*/device:GPU:0",
                                "device[1]=/job:worker/task:1/device:GPU:1",
                                "device[2]=/job:worker/task:2/device:CPU:0"});
  BOOST_TEST(to_string(device_of_worker(job, 0)) == "GPU:0");
  BOOST_TEST(to_string(device_of_worker(job, 1)) == "GPU:1");
  BOOST_TEST(to_string(device_of_worker(job, 2)) == "CPU:0");
  BOOST_TEST(to_string(device_of_worker(example_job("digits_mlp"), 0)) == "CPU:0");
}

BOOST_AUTO_TEST_CASE(jobs_with_bad_names_are_refused) {
  BOOST_TEST(contains(
    error_of([] {
      example_job(
        "digits_mlp",
        {"device[0]=/job:worker/task:0/device:GPU:0", "device[1]=/job:ps/task:0/device:GPU:0"});
    }),
    "device[1]: \"/job:ps/task:0/device:GPU:0\" names a task that only computes on the CPU"));
  BOOST_TEST(contains(
    error_of([] {
      example_job("advertising", {"solver=EXACT", "device[0]=/job:worker/task:0/device:GPU:0"});
    }),
    "device: solver: EXACT computes on the coordinator"));
}

BOOST_AUTO_TEST_SUITE_END()
