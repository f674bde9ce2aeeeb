// Evaluations within epochs, and evaluations of validation records.

#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"

#include <nlohmann/json.hpp>

#include <boost/test/unit_test.hpp>

#include <sstream>

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

BOOST_AUTO_TEST_SUITE(evaluation)

namespace {

/// A job of 3 epochs with 10 steps each.
proto::Job thirty_steps(proto::Protocol protocol, std::size_t workers,
                        const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"model.layer[0].dense.units=8",
                                   "data.digits={train: 160 test: 20}",
                                   "data.batch=" + std::to_string(16 / workers),
                                   "epochs=3",
                                   "output=out",
                                   "protocol=" + proto::Protocol_Name(protocol)};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

struct finished {
  run_summary summary;
  /// The lines of metrics.jsonl, sorted by their event.
  std::vector<json> evaluations;
  std::vector<json> epochs;
  json end;
};

finished run(simulation_options how) {
  how.files = std::make_shared<memory_storage>();
  finished result;
  result.summary = simulate(how).summary;
  std::istringstream lines{how.files->contents("out/metrics.jsonl")};
  for (std::string line; std::getline(lines, line);) {
    auto x = json::parse(line);
    if (x.at("event") == "evaluation")
      result.evaluations.push_back(std::move(x));
    else if (x.at("event") == "epoch")
      result.epochs.push_back(std::move(x));
    else if (x.at("event") == "end")
      result.end = std::move(x);
  }
  return result;
}

struct setting {
  proto::Protocol protocol;
  std::size_t workers;
  std::size_t ps;
};

constexpr setting settings[] = {
  {proto::RING, 2, 0}, {proto::SYNC_PS, 2, 2}, {proto::ASYNC_PS, 1, 2}, {proto::ASYNC_PS, 1, 1}};

} // namespace

BOOST_AUTO_TEST_CASE(every_so_many_steps) {
  for (auto& [protocol, workers, ps] : settings)
    for (const bool evaluator : {false, true})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", evaluator task " << evaluator) {
        const auto plain = run(simulated(thirty_steps(protocol, workers), workers, ps));
        auto how =
          simulated(thirty_steps(protocol, workers, {"evaluate={ every_steps: 4 }"}), workers, ps);
        how.evaluator = evaluator;
        const auto found = run(how);
        BOOST_TEST_REQUIRE(found.summary.failure == "");
        // Evaluations do not change training.
        BOOST_TEST(found.summary.weights_sha256 == plain.summary.weights_sha256);
        BOOST_TEST(plain.evaluations.empty());
        BOOST_TEST(found.epochs.size() == 3u);
        BOOST_TEST_REQUIRE(found.evaluations.size() == 7u);
        for (std::size_t i = 0; i < 7; ++i) {
          const auto& x = found.evaluations[i];
          const auto step = 4 * (i + 1);
          BOOST_TEST(x.at("step") == step);
          BOOST_TEST(x.at("epoch") == (step - 1) / 10 + 1);
          BOOST_TEST(x.at("test_loss").get<double>() > 0);
          BOOST_TEST(x.contains("test_accuracy"));
          BOOST_TEST(x.at("epochs_trained").get<double>() <= 3);
        }
      }
}

// An evaluation uses the weights of exactly its step. So the evaluation at the last step of an
// epoch uses the same weights as the evaluation at the end of the epoch.
BOOST_AUTO_TEST_CASE(the_weights_of_the_step) {
  for (auto& [protocol, workers, ps] : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << ps << " shards") {
      const auto found = run(
        simulated(thirty_steps(protocol, workers, {"evaluate={ every_steps: 10 }"}), workers, ps));
      BOOST_TEST_REQUIRE(found.summary.failure == "");
      BOOST_TEST_REQUIRE(found.evaluations.size() == 3u);
      for (std::size_t i = 0; i < 3; ++i) {
        BOOST_TEST(found.evaluations[i].at("test_loss") == found.epochs[i].at("test_loss"));
        BOOST_TEST(found.evaluations[i].at("test_accuracy") == found.epochs[i].at("test_accuracy"));
      }
    }
}

BOOST_AUTO_TEST_CASE(every_step_beside_checkpoints_and_with_stale_gradients) {
  const setting many[] = {{proto::RING, 2, 0}, {proto::SYNC_PS, 2, 2}, {proto::ASYNC_PS, 3, 2}};
  for (auto& [protocol, workers, ps] : many)
    for (const std::uint64_t seed : {1, 2})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", seed " << seed) {
        auto how = simulated(
          thirty_steps(protocol, workers,
                       {"evaluate={ every_steps: 1 }", "checkpoint={ every_steps: 3 keep: 2 }"}),
          workers, ps, seed);
        const auto found = run(how);
        BOOST_TEST(found.summary.failure == "");
        BOOST_TEST(found.summary.samples == 480u);
        // In asynchronous protocols, three versions of the weights may be due for evaluation at
        // almost the same time. Then one of them is skipped.
        const bool in_step = traits_of(protocol).in_step;
        BOOST_TEST(found.evaluations.size() >= (in_step ? 30u : 15u));
        for (std::size_t i = 0; i < found.evaluations.size(); ++i)
          if (in_step)
            BOOST_TEST(found.evaluations[i].at("step") == i + 1);
          else if (i > 0)
            BOOST_TEST(found.evaluations[i].at("step") > found.evaluations[i - 1].at("step"));
      }
}

BOOST_AUTO_TEST_CASE(validation_records) {
  for (const bool evaluator : {false, true}) {
    auto how = simulated(thirty_steps(proto::SYNC_PS, 2, {"evaluate={ every_steps: 7 }"}), 2, 1);
    const auto plain = run(how);
    how.evaluator = evaluator;
    // The validation set consists of training records, so its measures differ from those of the
    // test set.
    how.data.validation = how.data.train;
    const auto found = run(how);
    BOOST_TEST_REQUIRE(found.summary.failure == "");
    BOOST_TEST(found.summary.weights_sha256 == plain.summary.weights_sha256);
    for (const auto* lines : {&found.epochs, &found.evaluations})
      for (auto& x : *lines) {
        BOOST_TEST(x.contains("validation_loss"));
        BOOST_TEST(x.contains("validation_accuracy"));
        BOOST_TEST(!x.contains("test_loss"));
      }
    BOOST_TEST(found.end.at("test_loss") == plain.end.at("test_loss"));
    BOOST_TEST(found.end.at("test_accuracy") == plain.end.at("test_accuracy"));
    BOOST_TEST(found.end.at("validation_loss") == found.epochs.back().at("validation_loss"));
    BOOST_TEST(found.end.at("validation_loss") != found.end.at("test_loss"));
    BOOST_TEST(!plain.end.contains("validation_loss"));
  }
}

// The result of a run contains the loss and the other measures of the last weights on the test
// records. If the run ends early, the last weights are evaluated once more.
BOOST_AUTO_TEST_CASE(the_result_of_an_early_end) {
  for (auto& [protocol, workers, ps] : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << ps << " shards") {
      auto how =
        simulated(thirty_steps(protocol, workers,
                               {"epochs=1000", "early_stopping={patience: 2 min_delta: 100}",
                                "evaluate={ measure: [TOP_5] }"}),
                  workers, ps);
      how.data.validation = how.data.train;
      const auto found = run(how);
      BOOST_TEST(found.summary.failure == "");
      BOOST_TEST(!found.summary.ended_early.empty());
      BOOST_TEST(found.end.at("test_loss").is_number());
      BOOST_TEST(found.end.contains("test_top_5"));
      BOOST_TEST(found.end.contains("validation_loss"));
      BOOST_TEST(found.end.at("test_loss") != found.end.at("validation_loss"));
      // The evaluation of the last weights does not count as an epoch.
      BOOST_TEST_REQUIRE(found.evaluations.size() == 1u);
      BOOST_TEST(found.evaluations[0].at("validation_loss") == found.end.at("validation_loss"));
    }
}

BOOST_AUTO_TEST_CASE(an_evaluator_task_reports_measures) {
  auto how = simulated(
    thirty_steps(proto::SYNC_PS, 2, {"evaluate={ measure: [TOP_5, F1, PERPLEXITY, CONFUSION] }"}),
    2, 1);
  how.data.validation = how.data.train;
  const auto here = run(how);
  how.evaluator = true;
  const auto there = run(how);
  BOOST_TEST_REQUIRE(there.summary.failure == "");
  for (const auto* name : {"top_5", "f1", "perplexity", "confusion"}) {
    const auto validation = std::string{"validation_"} + name;
    const auto test = std::string{"test_"} + name;
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST_REQUIRE(here.epochs.back().contains(validation));
      BOOST_TEST(there.epochs.back().at(validation) == here.epochs.back().at(validation));
      BOOST_TEST_REQUIRE(here.end.contains(test));
      BOOST_TEST(there.end.at(test) == here.end.at(test));
    }
  }
}

BOOST_AUTO_TEST_CASE(batches_read_ahead_change_nothing) {
  for (auto& [protocol, workers, ps] : settings) {
    const auto one = run(simulated(thirty_steps(protocol, workers), workers, ps));
    for (const auto* ahead : {"2", "7", "64"}) {
      const auto job = thirty_steps(protocol, workers, {std::string{"data.prefetch="} + ahead});
      const auto more = run(simulated(job, workers, ps));
      BOOST_TEST(more.summary.failure == "");
      BOOST_TEST(more.summary.weights_sha256 == one.summary.weights_sha256);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
