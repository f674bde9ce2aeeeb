// The state of layers (running statistics) in clusters. It is not optimized. It is averaged over
// the workers, weighted by their numbers of samples.

#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

using namespace troupe;
using namespace troupe::test;

namespace {

proto::Job job_with(proto::Protocol protocol, const std::vector<std::string>& changes) {
  auto result = parse_job(R"(
    model {
      layer { dense { units: 12 } }
      layer { name: "norm" batch_norm {} }
      layer { dense { units: 10 } }
      loss: SOFTMAX_CROSS_ENTROPY
    }
    data { digits { train: 48 test: 20 } batch: 20 }
    learning_rate { base: 0.1 }
    epochs: 3
    output: "out")",
                          "job");
  result.set_protocol(protocol);
  for (auto& x : changes)
    apply_override(result, x);
  validate(result);
  return result;
}

} // namespace

BOOST_AUTO_TEST_SUITE(state)

BOOST_AUTO_TEST_CASE(one_worker_equals_a_serial_loop) {
  for (const auto* const rule : {"SGD", "ADAMW", "LAMB"})
    for (const auto protocol : all_protocols)
      check_equals_serial(
        job_with(protocol, {"optimizer.kind=" + std::string{rule}, "optimizer.weight_decay=0.1"}));
}

// One step uses all records, with one worker or with several that have batches of different sizes.
// Either way, the running mean is the mean of all records.
BOOST_AUTO_TEST_CASE(workers_count_by_their_samples) {
  const auto running_mean = [](const proto::Job& job, std::size_t workers) {
    simulation run{simulated(job, workers, 2)};
    BOOST_TEST(run.run().summary.failure == "");
    const auto context = make_job_context(job, shape_of(*build_data(job).train));
    const auto file = run.files().contents("out/weights.safetensors");
    const auto weights = read_model(as_byte_span(file), context->parameters(), "weights").weights;
    const auto* const entry = context->parameters().find("norm.running_mean");
    BOOST_TEST_REQUIRE(entry != nullptr);
    const auto found = std::span{weights}.subspan(entry->offset, entry->size);
    return std::vector<float>(found.begin(), found.end());
  };
  const auto whole = running_mean(job_with(proto::SYNC_PS, {"epochs=1", "data.batch=48"}), 1);
  const std::vector<double> expected(whole.begin(), whole.end());
  BOOST_TEST(std::ranges::any_of(whole, [](float x) { return std::abs(x) > 1e-3F; }));
  for (const auto protocol : {proto::SYNC_PS, proto::RING})
    for (const std::size_t workers : {3, 4}) {
      const auto job = job_with(protocol, {"epochs=1", "data.batch=20"});
      check_close(std::span<const float>{running_mean(job, workers)}, expected, 1e-5, 1e-7,
                  "running mean");
    }
}

BOOST_AUTO_TEST_SUITE_END()
