// The moving average of the weights (`moving_average`): with every protocol, in evaluations, in
// files, and in resumed runs.

#include "actors/checkpoint/resume.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/model_tester.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <nlohmann/json.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <map>
#include <sstream>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(moving_average)

namespace {

constexpr double decay = 0.75;
constexpr std::uint64_t steps = 20;

struct setting {
  proto::Protocol protocol;
  std::size_t workers;
  std::size_t ps;
  std::vector<std::string> more = {};
};

/// A job of 20 steps in 2 epochs. The model has running statistics and a frozen bias.
proto::Job twenty_steps(const setting& x, const std::string& average) {
  std::vector<std::string> changes{
    "model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { dense { units: 10 } } "
    "loss: SOFTMAX_CROSS_ENTROPY freeze: \"dense_3.bias\" }",
    "data.digits={train: 160 test: 20}",
    "data.batch=" + std::to_string(16 / x.workers),
    "epochs=2",
    "output=out",
    "checkpoint={every_steps: 1 keep: 40}",
    "evaluate={every_steps: 4}",
    "optimizer.kind=MOMENTUM",
    "protocol=" + proto::Protocol_Name(x.protocol)};
  changes.insert(changes.end(), x.more.begin(), x.more.end());
  if (!average.empty())
    changes.push_back("moving_average=" + average);
  return example_job("digits_mlp", changes);
}

const setting settings[] = {{proto::ASYNC_PS, 1, 2},
                            {proto::SSP, 1, 1},
                            {proto::SYNC_PS, 2, 2},
                            {proto::RING, 2, 0},
                            {proto::RING, 2, 0, {"ring={ shard_optimizer: true }"}}};

struct finished {
  explicit finished(const setting& x, const std::string& average = "{ decay: 0.75 }",
                    std::shared_ptr<const checkpoint> from = nullptr)
    : job(twenty_steps(x, average)), how(simulated(job, x.workers, x.ps)),
      context(make_job_context(job, shape_of(*how.data.train))) {
    how.files = std::make_shared<memory_storage>();
    how.resume = std::move(from);
    summary = simulate(how).summary;
    BOOST_TEST_REQUIRE(summary.failure == "");
  }

  std::shared_ptr<const checkpoint> load(std::uint64_t step) const { return load(step, *context); }

  std::shared_ptr<const checkpoint> load(std::uint64_t step, const job_context& as) const {
    return std::make_shared<checkpoint>(fit_checkpoint(
      read_checkpoint(*how.files, checkpoint_folder("out") / checkpoint_name(step)), as));
  }

  /// The weights in the output directory.
  std::vector<float> weights() const {
    const auto text = how.files->contents("out/weights.safetensors");
    return read_model(std::as_bytes(std::span{text}), context->parameters(), "w").weights;
  }

  /// The losses of the evaluations within epochs, by step.
  std::map<std::uint64_t, double> evaluations() const {
    std::map<std::uint64_t, double> result;
    std::istringstream lines{how.files->contents("out/metrics.jsonl")};
    for (std::string line; std::getline(lines, line);)
      if (const auto x = nlohmann::json::parse(line); x.at("event") == "evaluation")
        result[x.at("step")] = x.at("test_loss");
    return result;
  }

  double loss_of(std::span<const float> weights) const {
    return model_tester{*context}.run(weights, *how.data.test).loss;
  }

  proto::Job job;
  simulation_options how;
  std::shared_ptr<const job_context> context;
  run_summary summary;
};

std::vector<float> copy_of(std::span<const float> x) {
  return {x.begin(), x.end()};
}

} // namespace

BOOST_AUTO_TEST_CASE(follows_the_weights_after_each_update) {
  for (const auto& x : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol) << ' ' << x.more.size()) {
      const finished run{x};
      const finished plain{x, ""};
      std::vector<float> average;
      double largest = 0;
      for (std::uint64_t k = 1; k <= steps; ++k) {
        const auto here = run.load(k);
        const auto weights = here->slots.front().as_floats();
        const auto found = here->slots.back().as_floats();
        // The average does not change training.
        BOOST_TEST_REQUIRE(std::ranges::equal(weights, plain.load(k)->slots.front().as_floats()));
        if (k == 1)
          BOOST_TEST(std::ranges::equal(found, weights));
        for (const auto& tensor : run.context->parameters().entries())
          for (auto i = tensor.offset; k > 1 && i < tensor.offset + tensor.size; ++i) {
            const double w = weights[i];
            const double wanted = tensor.kind == parameter_kind::trainable
              ? decay * static_cast<double>(average[i]) + (1 - decay) * w
              : w;
            BOOST_REQUIRE_SMALL(wanted - static_cast<double>(found[i]), 1e-6);
            largest = std::max(largest, std::abs(w - wanted));
          }
        average = copy_of(found);
      }
      BOOST_TEST(largest > 1e-3);
      BOOST_TEST(run.weights() == average);
      BOOST_TEST(run.summary.test_loss == run.loss_of(average));
      BOOST_TEST(run.summary.weights_sha256 != plain.summary.weights_sha256);
      BOOST_TEST(run.evaluations().size() > 2u);
      for (const auto& [step, loss] : run.evaluations())
        BOOST_TEST(loss == run.loss_of(run.load(step)->slots.back().as_floats()));
    }
}

BOOST_AUTO_TEST_CASE(a_resumed_run_ends_with_the_same_bits) {
  for (const auto& x : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol) << ' ' << x.more.size()) {
      const finished whole{x};
      for (const std::uint64_t k : {1, 7, 13}) {
        auto other = x;
        other.ps = x.ps == 0 ? 0 : 3 - x.ps;
        const finished rest{other, "{ decay: 0.75 }", whole.load(k)};
        BOOST_TEST(rest.summary.weights_sha256 == whole.summary.weights_sha256);
      }
    }
}

BOOST_AUTO_TEST_CASE(begins_with_the_weights_of_a_checkpoint_without_an_average) {
  const setting x{proto::SYNC_PS, 2, 2};
  const finished plain{x, ""};
  const auto context = make_job_context(twenty_steps(x, "{}"), shape_of(*plain.how.data.train));
  const auto from = plain.load(7, *context);
  BOOST_TEST(from->slots.size() == 3u); // weights, momentum, average
  BOOST_TEST(std::ranges::equal(from->slots.back().as_floats(), from->slots.front().as_floats()));
}

BOOST_AUTO_TEST_CASE(what_makes_no_sense_is_refused) {
  const auto said = [](const std::string& average, const setting& x) {
    return error_of([&] { twenty_steps(x, average); });
  };
  const setting usual{proto::ASYNC_PS, 1, 1};
  for (const auto* wrong : {"{ decay: 0 }", "{ decay: 1 }", "{ decay: nan }"})
    BOOST_TEST(contains(said(wrong, usual), "moving_average.decay"));
  BOOST_TEST(contains(said("{}", {proto::LOCAL_SGD, 2, 0, {"local_sgd={ every: 1 }"}}),
                      "moving_average: the workers of LOCAL_SGD have different weights"));
  BOOST_TEST(said("{}", usual) == "(no error)");
}

BOOST_AUTO_TEST_SUITE_END()
