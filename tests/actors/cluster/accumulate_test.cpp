// A worker adds up the gradients of several batches before it sends them.

#include "actors/model/job_context.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <fstream>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(accumulate_batches)

namespace {

struct outcome {
  run_summary summary;
  std::vector<float> weights;
};

outcome run(proto::Job job, std::size_t workers, std::size_t ps) {
  job.set_output("out");
  simulation sim{simulated(job, workers, ps)};
  outcome result;
  result.summary = sim.run().summary;
  BOOST_TEST(result.summary.failure == "");
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  const auto file = sim.files().contents("out/weights.safetensors");
  result.weights = read_model(as_byte_span(file), context->parameters(), "weights").weights;
  return result;
}

/// A job with 100 records. Each step trains 12 records: per worker, or of all workers together.
/// They form several batches, whose gradients are added up. The last step of an epoch has fewer
/// records, so some of its batches are empty.
proto::Job job_with(proto::Protocol protocol, std::uint32_t batch, std::uint32_t accumulate,
                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{
    "data.digits={train: 100 test: 20}",         "data.batch=" + std::to_string(batch),
    "accumulate=" + std::to_string(accumulate),  "epochs=2",
    "learning_rate={base: 0.05 cosine {}}",      "model.layer[0].dense.units=8",
    "protocol=" + proto::Protocol_Name(protocol)};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

void check_equal(const outcome& found, const outcome& expected) {
  const std::vector<double> wide(expected.weights.begin(), expected.weights.end());
  check_close(std::span<const float>{found.weights}, wide, 1e-6, 1e-6, "weights");
  BOOST_TEST(found.summary.samples == expected.summary.samples);
  BOOST_TEST(found.summary.applied == expected.summary.applied);
  BOOST_TEST(found.summary.train_loss == expected.summary.train_loss,
             boost::test_tools::tolerance(1e-6));
}

} // namespace

BOOST_AUTO_TEST_CASE(several_batches_equal_a_large_one) {
  for (const auto protocol : all_protocols)
    for (const std::size_t workers : {1, 2})
      for (const std::size_t ps : {1, 3})
        BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << workers << " workers") {
          const std::vector<std::string> more{"optimizer.clip_norm=1", "runtime.bucket_bytes=1024"};
          const auto large = run(job_with(protocol, 12, 1, more), workers, ps);
          check_equal(run(job_with(protocol, 4, 3, more), workers, ps), large);
          // 10 = 3 + 3 + 3 + 1: the last of the four batches takes the samples that are left in the
          // step.
          check_equal(run(job_with(protocol, 3, 4, more), workers, ps), large);
        }
}

BOOST_AUTO_TEST_CASE(a_global_batch_is_of_all_batches) {
  auto job = job_with(proto::SYNC_PS, 12, 1);
  const auto expected = run(job, 2, 1);
  job.set_accumulate(2);
  job.mutable_data()->clear_batch();
  job.mutable_data()->set_global_batch(24);
  check_equal(run(job, 2, 1), expected);
}

// If the tasks are in different processes, a worker pulls and pushes only the rows of the weights
// that the records of all its batches use.
BOOST_AUTO_TEST_CASE(rows_of_all_batches) {
  const temporary_directory folder;
  const auto path = folder.path() / "records.libsvm";
  std::ofstream file{path};
  for (std::size_t i = 0; i < 60; ++i)
    file << i % 3 << ' ' << 1 + i * 37 % 2000 << ":1 " << 2001 + i * 91 % 2000 << ":2\n";
  file.close();
  const auto job = [&](const std::string& batches) {
    auto result = parse_job(R"(
      model { layer { dense { units: 5 } } layer { dense { units: 3 } } loss: SOFTMAX_CROSS_ENTROPY }
      data { libsvm { features: 5000 } }
      learning_rate { base: 0.05 }
      protocol: SYNC_PS epochs: 2)",
                            "job");
    result.mutable_data()->mutable_libsvm()->set_path(path.string());
    result.mutable_data()->set_batch(batches == "one" ? 10 : 5);
    result.set_accumulate(batches == "one" ? 1 : 2);
    validate(result);
    return result;
  };
  check_equal(run(job("two"), 2, 2), run(job("one"), 2, 2));
}

BOOST_AUTO_TEST_CASE(each_batch_has_masks_of_its_own) {
  const std::vector<std::string> more{
    "model={ layer { dense { units: 8 activation: RELU } } layer { dropout { rate: 0.3 } } "
    "layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }"};
  const auto expected = run(job_with(proto::SYNC_PS, 4, 3, more), 2, 2).summary.weights_sha256;
  for (const auto how : {way::here, way::simulated})
    BOOST_TEST(train(how, job_with(proto::SYNC_PS, 4, 3, more), 2, 1).weights_sha256 == expected);
}

// The sum over several batches counts as one gradient. If one batch has a gradient that is not
// finite, the whole sum is discarded.
BOOST_AUTO_TEST_CASE(a_batch_that_is_not_finite) {
  auto job = job_with(proto::SYNC_PS, 4, 3, {"learning_rate={base: 1e30}", "max_bad=2"});
  const auto x = simulate(simulated(job, 2, 1)).summary;
  BOOST_TEST(x.not_finite);
  BOOST_TEST(x.failure.find("is not finite") != std::string::npos, x.failure);
}

BOOST_AUTO_TEST_SUITE_END()
