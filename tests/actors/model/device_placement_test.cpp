#include "actors/model/device_placement.hpp"

#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(device_placement)

BOOST_AUTO_TEST_CASE(names) {
  const auto one = parse_device("/job:worker/task:3/device:GPU:1");
  BOOST_TEST((one.job == job_kind::worker));
  BOOST_TEST((one.task == 3U));
  BOOST_TEST(to_string(one.device) == "GPU:1");
  const auto all = parse_device("/job:worker/task:*/device:CPU:0");
  BOOST_TEST(!all.task);
  BOOST_TEST(to_string(all.device) == "CPU:0");
  for (const std::string name : {"coordinator", "chief", "master"})
    BOOST_TEST(
      (parse_device("/job:" + name + "/task:0/device:GPU:0").job == job_kind::coordinator));
  BOOST_TEST((parse_device("/job:ps/task:*/device:GPU:0").job == job_kind::ps));
  BOOST_TEST((parse_device("/job:evaluator/task:*/device:GPU:0").job == job_kind::evaluator));
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
         {"/job:chief/task:1/device:GPU:0", "names a second chief"},
         {"/job:evaluator/task:1/device:GPU:0", "names a second evaluator"},
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

BOOST_AUTO_TEST_CASE(devices_without_a_task) {
  for (const std::string text : {"GPU:0", "GPU:12", "CPU:0"})
    BOOST_TEST(to_string(parse_device_name(text)) == text);
  for (const std::string text : {"", "GPU", "gpu:0", "0", "GPU:x", "CPU:1", "/device:GPU:0"})
    BOOST_TEST(contains(error_of([&] { parse_device_name(text); }), "; expected GPU:N or CPU:0"),
               text);
}

BOOST_AUTO_TEST_CASE(the_last_entry_applies) {
  const auto job = example_job(
    "digits_mlp",
    {"device[0]=/job:worker/task:*/device:GPU:0", "device[1]=/job:worker/task:1/device:GPU:1",
     "device[2]=/job:worker/task:2/device:CPU:0", "device[3]=/job:ps/task:1/device:GPU:2"});
  const auto device = [&](job_kind of, std::uint32_t index) {
    return to_string(device_of(job, {of, index}));
  };
  BOOST_TEST(device(job_kind::worker, 0) == "GPU:0");
  BOOST_TEST(device(job_kind::worker, 1) == "GPU:1");
  BOOST_TEST(device(job_kind::worker, 2) == "CPU:0");
  BOOST_TEST(device(job_kind::ps, 0) == "CPU:0");
  BOOST_TEST(device(job_kind::ps, 1) == "GPU:2");
  BOOST_TEST(device(job_kind::coordinator, 0) == "CPU:0");
}

BOOST_AUTO_TEST_CASE(jobs_with_bad_names_are_refused) {
  BOOST_TEST(contains(error_of([] {
                        example_job("digits_mlp",
                                    {"device[0]=/job:worker/task:0/device:GPU:0",
                                     "device[1]=/job:ps/device:GPU:0"});
                      }),
                      "device[1]: \"/job:ps/device:GPU:0\" does not say which task"));
  BOOST_TEST(contains(
    error_of([] {
      example_job("advertising", {"solver=EXACT", "device[0]=/job:worker/task:0/device:GPU:0"});
    }),
    "device: solver: EXACT computes on the CPU of the coordinator"));
}

BOOST_AUTO_TEST_SUITE_END()
