// If a loss, a gradient or weights are not finite, the run ends with an error that tells the
// operator what to do.

#include "actors/checkpoint/checkpoint.hpp"
#include "actors/model/model_file.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/formats/file.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/spoilt.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(not_finite)

namespace {

proto::Job job_with(proto::Protocol protocol, const std::vector<std::string>& more) {
  std::vector<std::string> changes{"data.digits={train: 320 test: 20}",
                                   "data.batch=16",
                                   "epochs=3",
                                   "model.layer[0].dense.units=20",
                                   "output=out",
                                   "learning_rate={base: 0.05}",
                                   "protocol=" + proto::Protocol_Name(protocol)};
  for (const auto& x : {equal_after_every_step(protocol), more})
    changes.insert(changes.end(), x.begin(), x.end());
  return example_job("digits_mlp", changes);
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

} // namespace

// The learning rate is much too large, so numbers become infinite. The first task that notices this
// reports it: a worker in the loss, a shard or rank in the gradient that it clips.
BOOST_AUTO_TEST_CASE(a_rate_beyond_reason) {
  for (const auto protocol : all_protocols)
    for (const auto* const clip : {"optimizer.clip_norm=0", "optimizer.clip_norm=1e30"})
      for (const std::size_t workers : {1, 3})
        BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << clip << ", " << workers) {
          const auto job = job_with(protocol, {"learning_rate.base=1e30", clip});
          simulation run{simulated(job, workers, 2)};
          const auto result = run.run();
          const auto& text = result.summary.failure;
          BOOST_TEST_MESSAGE(text);
          BOOST_TEST(result.summary.not_finite);
          BOOST_TEST(contains(text, "not finite"), text);
          BOOST_TEST(contains(text, "step "), text);
          BOOST_TEST(contains(text, "first"), text);
          BOOST_TEST(contains(text, "(epoch 1 of 3)"), text);
          BOOST_TEST(
            contains(text, "No checkpoint was written; to get some, set checkpoint.every_steps"),
            text);
          BOOST_TEST(contains(text, "Lower learning_rate.base, set optimizer.clip_norm"), text);
          BOOST_TEST(run.files().contents("out/weights.safetensors").empty());
          // All nodes have ended.
          for (auto& node : result.nodes)
            BOOST_TEST(node.has_value());
        }
}

BOOST_AUTO_TEST_CASE(processes_end_too) {
  for (const auto protocol : all_protocols) {
    auto job = job_with(protocol, {"learning_rate.base=1e30"});
    job.clear_output();
    const auto result = train_in_processes(job, 2, 2);
    BOOST_TEST(contains(result.failure, "not finite"), result.failure);
  }
}

// One batch per epoch has a gradient that is not finite. This gradient is left out and reported.
// All other batches are trained.
BOOST_AUTO_TEST_CASE(features_that_are_not_finite) {
  for (const auto protocol : all_protocols)
    for (const std::size_t workers : {1, 2, 4})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << workers) {
        auto options = simulated(job_with(protocol, {}), workers, 2);
        options.data.train = std::make_shared<spoilt>(options.data.train, 77);
        const auto result = simulate(options);
        const auto& summary = result.summary;
        BOOST_TEST(summary.failure == "");
        BOOST_TEST(summary.split == 0U);
        const std::size_t parts = summary.quarantined / 3;
        BOOST_TEST(summary.quarantined == 3 * parts);
        BOOST_TEST(parts > 0U);
        BOOST_TEST(std::isfinite(summary.train_loss));
        BOOST_TEST(summary.test_accuracy.value_or(0) > 0.2);
      }
}

// The variance of a feature overflows, although the loss and all gradients are finite. The batch is
// left out, because it would spoil the running statistics.
BOOST_AUTO_TEST_CASE(statistics_that_are_not_finite) {
  for (const auto protocol : all_protocols)
    for (const auto* const clip : {"optimizer.clip_norm=0", "optimizer.clip_norm=1e30"})
      for (const std::size_t workers : {1, 2})
        BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << clip << ", " << workers) {
          auto options = simulated(
            job_with(protocol,
                     {"model={ layer { name: 'norm' batch_norm {} } layer { dense { units: "
                      "10 } } loss: SOFTMAX_CROSS_ENTROPY }",
                      clip}),
            workers, 2);
          options.data.train = std::make_shared<spoilt>(options.data.train, 77, 1e25F);
          const auto result = simulate(options);
          const auto& summary = result.summary;
          BOOST_TEST(summary.failure == "");
          BOOST_TEST(summary.quarantined > 0U);
          BOOST_TEST(std::isfinite(summary.test_loss));
          BOOST_TEST(summary.test_accuracy.value_or(0) > 0.2);
        }
}

// No record is finite. The run ends after `max_bad` consecutive batches that are not finite.
BOOST_AUTO_TEST_CASE(features_of_which_none_is_finite) {
  for (const auto protocol : all_protocols)
    for (const auto* const most : {"max_bad=1", "max_bad=2", "max_bad=3"}) {
      auto options = simulated(job_with(protocol, {most}), 2, 2);
      options.data.train = std::make_shared<spoilt>(options.data.train, all_records);
      const auto text = simulate(options).summary.failure;
      BOOST_TEST(contains(text, "the first tensor with such a value: features"), text);
      BOOST_TEST(contains(text, "(epoch 1 of 3)"), text);
      BOOST_TEST(contains(text, std::string{" of its step "} + (most + 8) + " is not"), text);
    }
}

// The gradient is computed in float and overflows. The loss is finite, because it is summed in
// double.
BOOST_AUTO_TEST_CASE(gradients_that_are_not_finite) {
  const temporary_directory folder;
  std::ofstream{folder / "table.csv"} << "x,y\n1e25,0\n2e25,0\n";
  auto job = parse_job(R"(
    model { layer { dense { units: 1 } } loss: MEAN_SQUARED_ERROR }
    data { csv { features: "x" target: "y" } batch: 1 }
    optimizer { clip_norm: 1 })",
                       "job");
  job.mutable_data()->mutable_csv()->set_path((folder / "table.csv").string());
  for (const auto protocol : all_protocols)
    for (const std::size_t workers : {1, 2}) {
      job.set_protocol(protocol);
      job.set_max_bad(1);
      const auto result = simulate(simulated(job, workers, 2)).summary;
      BOOST_TEST(result.not_finite);
      BOOST_TEST(contains(result.failure,
                          "the first tensor with such a value: the gradient of "
                          "dense_1.weight (epoch 1"),
                 result.failure);
      BOOST_TEST(contains(result.failure, "step 1"), result.failure);
    }
}

// The batch of the last update has a finite loss, but the update makes the weights infinite. The
// evaluation notices this, and the weights of an earlier epoch are kept.
BOOST_AUTO_TEST_CASE(weights_that_only_the_evaluation_sees) {
  for (const auto protocol : all_protocols) {
    const auto job = job_with(protocol,
                              {"data.batch=320", "optimizer.kind=SGD", "epochs=2",
                               "learning_rate={base: 0.1 step {every_epochs: 1.5 factor: 1e38}}"});
    simulation run{simulated(job, 1, 2)};
    const auto result = run.run().summary;
    BOOST_TEST_MESSAGE(result.failure);
    BOOST_TEST(result.not_finite);
    BOOST_TEST(contains(result.failure, "not finite"), result.failure);
    BOOST_TEST(contains(result.failure, "(epoch 2 of 2)"), result.failure);
    const auto context = make_job_context(job, shape_of(*build_data(job).train));
    const auto file = run.files().contents("out/weights.safetensors");
    const auto written = read_model(as_byte_span(file), context->parameters(), "weights");
    BOOST_TEST(written.info.version == 1U);
    BOOST_TEST(all_finite(written.weights));
  }
}

BOOST_AUTO_TEST_CASE(the_last_checkpoint_is_named_and_finite) {
  for (const auto protocol : all_protocols) {
    const auto job = job_with(protocol,
                              {"learning_rate={base: 0.05 step {every_epochs: 1.5 factor: 1e35}}",
                               "checkpoint.every_steps=1", "checkpoint.keep=100"});
    auto options = simulated(job, 2, 2);
    options.files = std::make_shared<memory_storage>();
    simulation run{options};
    const auto text = run.run().summary.failure;
    const auto begin = text.find("The last checkpoint is ");
    BOOST_TEST_REQUIRE(begin != std::string::npos, text);
    const auto name = text.substr(begin + 23, text.find(". ", begin) - begin - 23);
    const auto from = read_checkpoint(*options.files, name);
    const auto context = make_job_context(job, shape_of(*build_data(job).train));
    BOOST_TEST(all_finite(fit_checkpoint(from, *context).slots[0].as_floats()));
  }
}

BOOST_AUTO_TEST_SUITE_END()
