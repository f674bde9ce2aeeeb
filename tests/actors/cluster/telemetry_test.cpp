// The reports that tasks send about themselves, as the operator sees them.

#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(telemetry)

namespace {

constexpr std::uint64_t samples = 320;
constexpr std::uint64_t batch = 16;
constexpr std::uint64_t epochs = 4;
constexpr std::uint64_t gradients = epochs * samples / batch;

proto::Job job_with(proto::Protocol protocol) {
  std::vector<std::string> changes{"data.digits={train: 320 test: 20}", "data.batch=16", "epochs=4",
                                   "protocol=" + proto::Protocol_Name(protocol)};
  for (auto& x : equal_after_every_step(protocol))
    changes.push_back(x);
  return example_job("digits_mlp", changes);
}

std::uint64_t total(const staleness_counts& x) {
  return std::accumulate(x.begin(), x.end(), std::uint64_t{0});
}

double seconds_of(const task_status& x) {
  return x.computing + x.waiting_for_lease + x.waiting_for_data + x.waiting_for_weights
    + x.waiting_for_update;
}

} // namespace

BOOST_AUTO_TEST_CASE(the_summary_counts_all) {
  for (const auto protocol : all_protocols)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      auto options = simulated(job_with(protocol), 2, 2);
      options.links.latency = 5ms;
      const auto summary = simulate(options).summary;
      BOOST_TEST_REQUIRE(summary.failure == "");
      const auto& row = traits_of(protocol);
      const bool in_step = row.in_step;
      BOOST_TEST(total(summary.staleness) == gradients);
      if (in_step)
        BOOST_TEST(summary.staleness[0] == gradients);
      else
        BOOST_TEST(summary.staleness[0] < gradients);
      BOOST_TEST_REQUIRE(summary.tasks.size() == 4U);
      std::uint64_t steps = 0;
      std::uint64_t trained = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        const auto& x = summary.tasks[i];
        BOOST_TEST((x.task == task_name{job_kind::worker, static_cast<std::uint32_t>(i)}));
        steps += x.steps;
        trained += x.samples;
        // The seconds that a task reports add up to nearly the whole run.
        BOOST_TEST(seconds_of(x) <= summary.seconds);
        BOOST_TEST(seconds_of(x) > 0.8 * summary.seconds);
        BOOST_TEST(x.samples_per_second > 0);
        BOOST_TEST(x.waiting_for_update > 0);
        if (row.uses_shards())
          BOOST_TEST(x.waiting_for_weights > 0);
      }
      BOOST_TEST(steps == gradients);
      BOOST_TEST(trained == samples * epochs);
      for (std::size_t i = 2; i < 4; ++i) {
        const auto expected = !row.uses_shards() ? 0U : in_step ? gradients / 2 : gradients;
        BOOST_TEST(summary.tasks[i].steps == expected);
      }
    }
}

// The reported learning rate is the rate at the middle of a step. A step takes a second here.
BOOST_AUTO_TEST_CASE(the_rate_of_a_step) {
  for (const auto protocol : {proto::SYNC_PS, proto::RING})
    for (const std::uint64_t workers : {1, 2}) {
      // The last of four steps has the 6 samples that remain of 96 after three steps of 30.
      auto job = job_with(protocol);
      for (const auto* change :
           {"data.digits.train=96", "epochs=1", "learning_rate={base: 0.5 cosine {}}"})
        apply_override(job, change);
      job.mutable_data()->set_batch(static_cast<std::uint32_t>(30 / workers));
      auto options = simulated(job, workers, 1);
      options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1s; };
      simulation run{options};
      BOOST_TEST(run.run().summary.failure == "");
      const auto rate = build_learning_rate(job);
      std::vector<double> expected;
      for (const double middle : {15, 45, 75, 93})
        expected.push_back(rate.at(middle / 96));
      BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol) << ", " << workers << " workers") {
        BOOST_TEST(run.seen().progress.size() > 8U);
        for (const auto& x : run.seen().progress)
          BOOST_TEST(std::ranges::count(expected, x.learning_rate) == 1, x.learning_rate);
      }
    }
}

// Tests which part of the communication is hidden, that is, happens while the worker computes. A
// gradient takes 30 ms and is sent when it is complete. So only an early pull can be hidden: of its
// 40 ms, 30 ms.
BOOST_AUTO_TEST_CASE(hidden_communication) {
  const auto hidden = [](const char* ahead) {
    auto job = job_with(proto::ASYNC_PS);
    apply_override(job, ahead);
    auto options = simulated(job, 2, 1);
    options.links.latency = 20ms;
    options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 30ms; };
    const auto summary = simulate(options).summary;
    BOOST_TEST(summary.failure == "");
    double result = 0;
    double computing = 0;
    for (const auto& x : summary.tasks) {
      result += x.exchanging_while_computing;
      computing += x.computing;
    }
    BOOST_TEST(*hidden_share(summary.tasks) < 1);
    return result / computing;
  };
  BOOST_TEST(hidden("pull_ahead=0") == 0);
  BOOST_TEST(hidden("pull_ahead=1") > 0.9);
}

// Workers average one fragment of the weights while they continue to train. So this communication
// is hidden.
BOOST_AUTO_TEST_CASE(hidden_averages) {
  auto job = job_with(proto::LOCAL_SGD);
  for (const auto* change : {"local_sgd.every=8", "local_sgd.fragments=4"})
    apply_override(job, change);
  auto options = simulated(job, 2, 0);
  options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1ms; };
  options.links.latency = 5ms;
  const auto summary = simulate(options).summary;
  BOOST_TEST(summary.failure == "");
  BOOST_TEST_REQUIRE(summary.tasks.size() == 2U);
  for (const auto& x : summary.tasks) {
    BOOST_TEST(x.exchanging_while_computing > 0);
    BOOST_TEST(x.exchanging_while_computing <= x.computing);
  }
}

// With `placement: BY_TENSOR`, most weights are on one shard, because they belong to the first
// layer. A notice says so, once.
BOOST_AUTO_TEST_CASE(a_hot_shard_is_told_once) {
  const auto told = [](const std::string& placement, const std::string& optimizer,
                       std::size_t ps = 3) {
    auto job = job_with(proto::ASYNC_PS);
    apply_override(job, "placement=" + placement);
    apply_override(job, "optimizer.kind=" + optimizer);
    auto options = simulated(job, 2, ps);
    options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 100ms; };
    simulation run{options};
    BOOST_TEST(run.run().summary.failure == "");
    std::string result;
    for (auto& x : run.seen().notices)
      if (x.text.find("as many bytes as the mean of the other parameter servers")
          != std::string::npos)
        result += x.text + '\n';
    return result;
  };
  BOOST_TEST(told("BY_BYTES", "MOMENTUM") == "");
  const auto text = told("BY_TENSOR", "MOMENTUM");
  BOOST_TEST(text.starts_with("ps/0 carries "), text);
  BOOST_TEST(text.ends_with("Leave out placement: BY_TENSOR, so that large tensors are divided\n"),
             text);
  BOOST_TEST(std::ranges::count(text, '\n') == 1, text);
  BOOST_TEST(told("BY_TENSOR", "MOMENTUM", 2).starts_with("ps/0 carries "));
  BOOST_TEST(told("BY_TENSOR", "LAMB").find("LAMB needs whole tensors") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(progress_shows_all_tasks) {
  for (const auto protocol : all_protocols)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(protocol)) {
      auto options = simulated(job_with(protocol), 2, 2);
      options.links.latency = 30ms;
      simulation run{options};
      BOOST_TEST(run.run().summary.failure == "");
      const auto& progress = run.seen().progress;
      BOOST_TEST_REQUIRE(progress.size() > 4U);
      for (std::size_t i = 1; i < progress.size(); ++i) {
        BOOST_TEST(progress[i].seconds > progress[i - 1].seconds);
        BOOST_TEST(progress[i].updates >= progress[i - 1].updates);
      }
      const auto& last = progress.back();
      BOOST_TEST(last.updates > 0U);
      BOOST_TEST(total(last.staleness) > 0U);
      BOOST_TEST_REQUIRE(last.tasks.size() == 4U);
      for (auto& x : last.tasks) {
        BOOST_TEST(!x.activity.empty(), to_string(x.task));
        if (x.task.job == job_kind::worker) {
          BOOST_TEST(x.steps > 0U);
          BOOST_TEST(x.activity_seconds < 1);
        }
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
