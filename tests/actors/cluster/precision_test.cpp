// Workers that compute in 16-bit floating-point types, with loss scaling: the loss is multiplied by
// a scale, so that small gradients do not become 0.

#include "actors/checkpoint/checkpoint_manifest.hpp"
#include "actors/model/job_context.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/protocol_traits.hpp"
#include "actors/worker/loss_scale.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/graph/graph.hpp"
#include "tests/actors/cluster/resumed_runs.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(precision)

namespace {

const std::string cnn =
  "model={ layer { conv2d { filters: 6 kernel: 5 stride: 2 bias: false } } "
  "layer { batch_norm {} } layer { activation: RELU } layer { max_pool { kernel: 2 } } "
  "layer { flatten {} } layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";

proto::Job job_with(const std::vector<std::string>& more) {
  std::vector<std::string> changes{"data.digits={train: 120 test: 40}",
                                   "data.batch=10",
                                   "epochs=2",
                                   "learning_rate={base: 0.05}",
                                   "protocol=RING",
                                   "model.layer[0].dense.units=16",
                                   "output=out"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

/// The weights that a simulated run writes to its output directory.
std::vector<float> weights_after(const proto::Job& job) {
  simulation sim{simulated(job, 2, 2)};
  BOOST_TEST(sim.run().summary.failure == "");
  const auto context = make_job_context(job, shape_of(*build_data(job).train));
  const auto file = sim.files().contents("out/weights.safetensors");
  return read_model(as_byte_span(file), context->parameters(), "weights").weights;
}

/// The Euclidean norm of a - b divided by that of b.
double distance_between(const std::vector<float>& a, const std::vector<float>& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / size);
}

constexpr float infinity = std::numeric_limits<float>::infinity();

} // namespace

BOOST_AUTO_TEST_CASE(a_scale_grows_and_shrinks) {
  loss_scale scale{4, 3};
  for (int i = 0; i < 2; ++i)
    scale.succeeded();
  BOOST_TEST(scale.value() == 4);
  scale.succeeded();
  BOOST_TEST(scale.value() == 8);
  // After an overflow, the number of consecutive successful batches starts again at 0.
  scale.succeeded();
  scale.succeeded();
  BOOST_TEST(scale.overflowed());
  BOOST_TEST(scale.value() == 4);
  scale.succeeded();
  BOOST_TEST(scale.value() == 4);
  BOOST_TEST(scale.overflowed());
  BOOST_TEST(scale.overflowed());
  BOOST_TEST(scale.value() == loss_scale::least);
  // The batch overflows even at the smallest scale. So the scale is not the cause, and the scale is
  // reset for the next batch.
  BOOST_TEST(!scale.overflowed());
  BOOST_TEST(scale.value() == 4);
  // A resumed run continues to count successful batches where the old run stopped.
  scale.succeeded();
  scale.succeeded();
  loss_scale resumed{scale.state(), 3};
  BOOST_TEST(resumed.value() == 4);
  resumed.succeeded();
  BOOST_TEST(resumed.value() == 8);
  BOOST_TEST((resumed.state() == loss_scale_state{8, 0}));
  loss_scale fixed{16, 0};
  for (int i = 0; i < 100; ++i)
    fixed.succeeded();
  BOOST_TEST(fixed.value() == 16);
  loss_scale largest{loss_scale::most, 1};
  largest.succeeded();
  BOOST_TEST(largest.value() == loss_scale::most);
}

// The "gradients" of running statistics do not come from the loss, so they are not multiplied by
// the scale.
BOOST_AUTO_TEST_CASE(scales_of_gradients) {
  graph g;
  g.variable("w", {2});
  g.variable("mean", {1}, {}, parameter_kind::state);
  g.variable("b", {1});
  const auto& parameters = g.parameters();
  std::vector<float> gradient{8, -4, 8, 2};
  remove_scale(parameters, 4, gradient);
  BOOST_TEST((gradient == std::vector<float>{2, -1, 8, 0.5F}));
  BOOST_TEST(is_finite(parameters, gradient));
  gradient[2] = infinity;
  BOOST_TEST(is_finite(parameters, gradient));
  for (const std::size_t i : {0, 1, 3}) {
    auto wrong = gradient;
    wrong[i] = i == 1 ? std::numeric_limits<float>::quiet_NaN() : -infinity;
    BOOST_TEST(!is_finite(parameters, wrong));
  }
}

// Measured: accuracies in 16 bits differ by at most 0.2 points from those in float32. This test
// runs only in the optimized build, because it takes much longer under a sanitizer.
BOOST_AUTO_TEST_CASE(digits_reach_the_accuracy_of_float32,
                     *boost::unit_test::enable_if<!under_sanitizer>()) {
  const std::vector<std::string> size{"data.digits={train: 4000 test: 4000}", "data.batch=16",
                                      "epochs=5", "learning_rate={base: 0.02 cosine {}}"};
  for (const auto& model : {std::string{"model.layer[0].dense.units=64"}, cnn}) {
    const auto accuracy = [&](const std::string& type) {
      auto changes = size;
      changes.push_back(model);
      changes.push_back("precision=" + type);
      const auto result = train(way::here, job_with(changes), 2, 0);
      BOOST_TEST(result.failure == "");
      BOOST_TEST(result.samples == 20000U);
      return result.test_accuracy.value_or(0);
    };
    const auto expected = accuracy("FLOAT32");
    BOOST_TEST(expected > 0.85);
    for (const std::string type : {"BFLOAT16", "FLOAT16"}) {
      const auto found = accuracy(type);
      BOOST_TEST(std::fabs(found - expected) <= 0.005, type << ", " << model);
      BOOST_TEST_MESSAGE(type << ": " << found << " instead of " << expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(all_ways_to_run_give_the_same_bits) {
  for (const std::string type : {"BFLOAT16", "FLOAT16"})
    for (const std::string protocol : {"RING", "SYNC_PS"}) {
      const auto job = job_with({cnn, "precision=" + type, "protocol=" + protocol});
      const auto ps = traits_of(job).uses_shards() ? 2 : 0;
      const auto expected = train(way::simulated, job, 2, ps);
      BOOST_TEST(expected.failure == "");
      for (const auto how : {way::here, way::processes})
        BOOST_TEST(train(how, job, 2, ps).weights_sha256 == expected.weights_sha256, how);
      auto wide = job;
      wide.clear_precision();
      BOOST_TEST(train(way::simulated, wide, 2, ps).weights_sha256 != expected.weights_sha256);
    }
}

// The first gradients overflow at the initial scale, 2^60. Their batches are computed again at
// smaller scales, so no batch is left out.
BOOST_AUTO_TEST_CASE(a_scale_that_is_too_large) {
  for (const auto protocol : all_protocols)
    for (const std::string batches : {"accumulate=1", "accumulate=3"})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << batches) {
        const std::vector<std::string> changes{"protocol=" + proto::Protocol_Name(protocol),
                                               batches, "max_bad=1", "precision=FLOAT16"};
        auto job = job_with(changes);
        const auto expected = train(way::simulated, job, 1, 1);
        job.mutable_loss_scale()->set_initial(0x1p60);
        const auto found = train(way::simulated, job, 1, 1);
        BOOST_TEST(found.failure == "");
        BOOST_TEST(found.samples == 240U);
        BOOST_TEST(found.applied == expected.applied);
        BOOST_TEST(found.quarantined == 0U);
        BOOST_TEST(found.train_loss == expected.train_loss, boost::test_tools::tolerance(0.01));
      }
}

// The scale doubles after each batch until a batch overflows. Each worker has its own scale. If the
// scale stayed at 1, small gradients would become 0.
BOOST_AUTO_TEST_CASE(a_scale_that_always_grows) {
  some_cases chosen{2};
  for (const std::string more : {"accumulate=3", "accumulate=1", "optimizer.clip_norm=0.5"}) {
    if (!chosen())
      continue;
    auto job = job_with({"precision=FLOAT16", "max_bad=1", more});
    const auto expected = train(way::simulated, job, 2, 0);
    job.mutable_loss_scale()->set_initial(0x1p30);
    job.mutable_loss_scale()->set_growth_interval(1);
    const auto found = train(way::simulated, job, 2, 0);
    BOOST_TEST(found.failure == "");
    BOOST_TEST(found.samples == expected.samples);
    BOOST_TEST(found.quarantined == 0U);
    BOOST_TEST(found.train_loss == expected.train_loss, boost::test_tools::tolerance(0.01));
    job.mutable_loss_scale()->set_initial(1);
    job.set_epochs(30);
    const auto grown = train(way::simulated, job, 2, 0);
    job.mutable_loss_scale()->set_growth_interval(0);
    BOOST_TEST(train(way::simulated, job, 2, 0).weights_sha256 != grown.weights_sha256);
  }
}

// Some gradients of this model are so small that the scale changes the result. So a resumed run
// gives the same bits only if it restores the scales and the number of batches since their last
// change.
BOOST_AUTO_TEST_CASE(a_resumed_run_continues_with_the_scales) {
  for (const auto protocol : {proto::RING, proto::SYNC_PS, proto::LOCAL_SGD})
    for (const std::string interval : {"1", "3"})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", growth_interval: " << interval) {
        auto changes = equal_after_every_step(protocol);
        for (const auto& x :
             {"protocol=" + proto::Protocol_Name(protocol), std::string{"data.batch=8"},
              std::string{"precision=FLOAT16"}, std::string{"learning_rate={base: 0.8}"},
              std::string{"model.layer[0].dense.activation=SIGMOID"},
              "loss_scale={initial: 1 growth_interval: " + interval + "}"})
          changes.push_back(x);
        const auto job = forty_steps(changes);
        const std::size_t ps = traits_of(job).uses_shards() ? 2 : 0;
        const site first{simulated(job, 2, ps)};
        const auto whole = simulate(first.options).summary;
        BOOST_TEST_REQUIRE(whole.failure == "");
        for (const std::uint64_t step : {5, 11, 16}) {
          const auto saved = first.load(step, job);
          for (const auto& mark : saved->manifest.marks)
            BOOST_TEST(mark.loss_scale.value().value > 1U);
          BOOST_TEST(simulate(going_on(first, job, 2, ps, step)).summary.weights_sha256
                     == whole.weights_sha256);
        }
      }
}

// A run continues with another number of workers. Each old worker keeps its scale, and a new worker
// begins with the largest of the scales. No scale grows in this run. So its checkpoints show the
// scales with which the workers began.
BOOST_AUTO_TEST_CASE(scales_of_another_number_of_workers) {
  for (const std::string protocol : {"RING", "ASYNC_PS"}) {
    auto job = forty_steps(
      {"protocol=" + protocol, "precision=FLOAT16", "loss_scale={initial: 1 growth_interval: 2}"});
    const site first{simulated(job, 2, 1)};
    BOOST_TEST_REQUIRE(simulate(first.options).summary.failure == "");
    const auto names = first.checkpoints(); // some steps of asynchronous runs have no checkpoint
    const auto from = checkpoint_step(names.at(names.size() / 2));
    const auto marks = first.load(from, job)->manifest.marks;
    BOOST_TEST_REQUIRE(marks.size() == 2U);
    job.mutable_loss_scale()->set_growth_interval(0);
    auto how = going_on(first, job, 3, 1, from);
    how.files = std::make_shared<memory_storage>();
    const site second{how};
    BOOST_TEST_REQUIRE(simulate(second.options).summary.failure == "");
    const auto resumed = second.newest(job)->manifest.marks;
    BOOST_TEST_REQUIRE(resumed.size() == 3U);
    for (std::uint32_t i = 0; i < 3; ++i)
      BOOST_TEST(resumed[i].loss_scale.value().value == resumed_scale(marks, i).value().value);
    // A checkpoint contains the scale of each worker, even of a worker that has not sent a gradient
    // yet.
    for (const auto& name : second.checkpoints()) {
      const auto saved = second.load(checkpoint_step(name), job);
      for (std::uint32_t i = 0; i < 3; ++i)
        BOOST_TEST(
          (saved->manifest.marks.at(i).loss_scale
           && saved->manifest.marks.at(i).loss_scale->value == resumed_scale(marks, i)->value),
          name << ", worker " << i);
    }
  }
}

BOOST_AUTO_TEST_CASE(weights_stay_close_to_those_of_float32) {
  for (const auto& model : {std::string{"model.layer[0].dense.units=16"}, cnn}) {
    const auto expected = weights_after(job_with({model}));
    for (const std::string type : {"BFLOAT16", "FLOAT16"})
      for (const std::string batches : {"accumulate=1", "accumulate=3"}) {
        const auto wide =
          batches == "accumulate=1" ? expected : weights_after(job_with({model, batches}));
        const auto found = weights_after(job_with({model, batches, "precision=" + type}));
        // Max pooling and batch normalization make small differences grow from step to step.
        const double limit = model == cnn ? 0x1p-4 : type == "BFLOAT16" ? 0x1p-5 : 0x1p-9;
        const auto difference = distance_between(found, wide);
        BOOST_TEST(difference <= limit, type << ", " << batches << ", " << model);
        BOOST_TEST(difference > 0);
        BOOST_TEST_MESSAGE(type << ": " << difference);
      }
  }
}

// Gradients and weights are rounded in the same way whether they are sent or not. The state of
// layers is not rounded. (The hash covers it.)
BOOST_AUTO_TEST_CASE(exchange_in_bfloat16) {
  for (const std::string protocol : {"SYNC_PS", "RING"})
    for (const std::uint32_t workers : {2, 3})
      BOOST_TEST_CONTEXT(protocol << ", " << workers << " workers") {
        const auto job =
          job_with({cnn, "protocol=" + protocol, "exchange_precision=BFLOAT16", "accumulate=2"});
        auto apart = simulated(job, workers, 2);
        apart.channels = true;
        const auto sent = simulate(apart).summary;
        BOOST_TEST(sent.failure == "");
        BOOST_TEST(sent.weights_sha256 == train_here(job, workers, 2).weights_sha256);
      }
  const auto exact = weights_after(job_with({cnn, "protocol=SYNC_PS"}));
  const auto found =
    weights_after(job_with({cnn, "protocol=SYNC_PS", "exchange_precision=BFLOAT16"}));
  const auto difference = distance_between(found, exact);
  BOOST_TEST(difference > 0);
  BOOST_TEST(difference <= 0x1p-4);
}

// The loss is infinite at every scale. The run ends, as it does in float32.
BOOST_AUTO_TEST_CASE(a_loss_that_no_scale_helps) {
  const auto found =
    train(way::simulated,
          job_with({"precision=FLOAT16", "learning_rate={base: 1e30}", "max_bad=1"}), 1, 0);
  BOOST_TEST(found.not_finite);
  BOOST_TEST(found.failure != "");
}

BOOST_AUTO_TEST_SUITE_END()
