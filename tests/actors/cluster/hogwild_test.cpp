// HOGWILD: workers in one process write to shared weights without locks.

#include "actors/checkpoint/resume.hpp"
#include "actors/model/sha256.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/actors/model/serial_training.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(hogwild)

namespace {

/// A job with 130 samples in batches of 32: the last batch of an epoch is small.
proto::Job job_with(const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"data.digits={train: 130 test: 20}", "data.batch=32", "epochs=3",
                                   "protocol=HOGWILD", "optimizer={kind: SGD weight_decay: 0.001}"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

simulation_options in_one_process(const proto::Job& job, std::size_t workers, std::size_t ps,
                                  std::uint64_t seed = 1) {
  auto result = simulated(job, workers, ps, seed);
  result.one_node = true;
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(one_worker_equals_a_serial_loop) {
  for (const auto* clip : {"optimizer.clip_norm=0", "optimizer.clip_norm=0.5"}) {
    const auto job = job_with({clip});
    serial_training loop{job};
    loop.train();
    const auto expected = sha256_hex(std::span<const float>{loop.weights()});
    for (const std::uint32_t ps : {1, 3}) {
      BOOST_TEST(train_here(job, 1, ps).weights_sha256 == expected);
      BOOST_TEST(simulate(in_one_process(job, 1, ps)).summary.weights_sha256 == expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(workers_that_write_at_once_learn) {
  const auto job = job_with({"data.digits={train: 2000 test: 200}", "epochs=4"});
  for (int i = 0; i < 3; ++i) {
    const auto result = train_here(job, 4, 2);
    BOOST_TEST(result.failure == "");
    BOOST_TEST(result.samples == 8000U);
    BOOST_TEST(result.split == 0U);
    BOOST_TEST(result.lost == 0U);
    BOOST_TEST(result.test_accuracy.value() > 0.7);
  }
}

BOOST_AUTO_TEST_CASE(the_simulator_repeats_a_run) {
  const auto job = job_with();
  const auto first = simulate(in_one_process(job, 4, 2, 5)).summary;
  BOOST_TEST(first.failure == "");
  BOOST_TEST(simulate(in_one_process(job, 4, 2, 5)).summary.weights_sha256 == first.weights_sha256);
}

BOOST_AUTO_TEST_CASE(going_on_from_a_checkpoint_gives_the_same_bits) {
  const auto job = job_with({"output=out", "checkpoint={every_steps: 4 keep: 9}"});
  auto options = in_one_process(job, 1, 2);
  options.files = std::make_shared<memory_storage>();
  const auto whole = simulate(options).summary;
  BOOST_TEST_REQUIRE(whole.failure == "");
  const auto context = make_job_context(job, shape_of(*options.data.train));
  for (const std::uint64_t step : {4, 8, 12}) {
    const auto path = checkpoint_folder("out") / checkpoint_name(step);
    auto rest = options;
    rest.files = nullptr;
    rest.resume =
      std::make_shared<checkpoint>(fit_checkpoint(read_checkpoint(*options.files, path), *context));
    BOOST_TEST(simulate(rest).summary.weights_sha256 == whole.weights_sha256);
  }
}

BOOST_AUTO_TEST_CASE(workers_in_other_processes_are_refused) {
  const auto failure = simulate(simulated(job_with(), 2, 1)).summary.failure;
  BOOST_TEST(failure.find("protocol hogwild needs all workers in the process of the parameter "
                          "servers, and worker/")
               != std::string::npos,
             failure);
  BOOST_TEST(failure.find("use `troupe train` without --processes, or protocol: ASYNC_PS")
               != std::string::npos,
             failure);
}

BOOST_AUTO_TEST_SUITE_END()
