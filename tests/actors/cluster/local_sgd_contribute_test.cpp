// Averages that do not wait for the steps of slow workers.

#include "tests/actors/cluster/local_sgd_runs.hpp"

#include <map>
#include <tuple>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t samples = 4 * 1280;

proto::Job contributing(const std::vector<std::string>& more = {}) {
  auto changes = more;
  changes.insert(changes.begin(),
                 {"local_sgd.behind=CONTRIBUTE", "data.digits={train: 1280 test: 100}"});
  return local(8, changes);
}

/// A gradient takes a millisecond; one of worker 0 takes five.
simulation_options with_a_slow_worker(const proto::Job& job, std::size_t crew = workers,
                                      std::uint64_t seed = 1) {
  auto result = simulated(job, crew, 0, seed);
  result.gradient_done = [](std::size_t worker, std::chrono::nanoseconds now) {
    return now + (worker == 0 ? 5ms : 1ms);
  };
  return result;
}

void check_balanced(const run_summary& x, std::size_t crew) {
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == samples);
  // Each gradient counts once per replica.
  BOOST_TEST(x.applied == samples / 16 * crew);
  BOOST_TEST(x.split == 0U);
  BOOST_TEST(x.lost == 0U);
  BOOST_TEST(x.rejected_stale == 0U);
}

} // namespace

BOOST_AUTO_TEST_SUITE(local_sgd_contribute)

BOOST_AUTO_TEST_CASE(a_slow_worker_is_not_waited_for) {
  auto waiting = contributing();
  waiting.mutable_local_sgd()->clear_behind();
  const auto slow = simulate(with_a_slow_worker(waiting));
  const auto fast = simulate(with_a_slow_worker(contributing()));
  BOOST_TEST(slow.summary.failure == "");
  check_balanced(fast.summary, workers);
  const double ratio =
    static_cast<double>(slow.virtual_time.count()) / static_cast<double>(fast.virtual_time.count());
  BOOST_TEST_MESSAGE("WAIT takes " << ratio << " times as long; losses " << slow.summary.test_loss
                                   << " and " << fast.summary.test_loss);
  // Without CONTRIBUTE, 4 x 8 gradients take 40 ms. With it, 26 gradients take about 10 ms.
  BOOST_TEST(ratio > 2);
  BOOST_TEST(fast.summary.test_loss < 2.0);
}

// Every worker takes part in every average, and makes at most `every` steps in between.
BOOST_AUTO_TEST_CASE(all_workers_contribute) {
  simulation run{with_a_slow_worker(contributing())};
  // The ranks that sent pieces of each average.
  std::map<std::uint64_t, std::map<sim_node, int>> averages;
  run.network().judge_with([&](sim_node from, sim_node, const caf::message& content) {
    if (content.match_elements<proto::Frame, caf::message>()) {
      const auto& inner = content.get_as<caf::message>(1);
      if (inner.match_elements<proto::Segment, payload>())
        ++averages[inner.get_as<proto::Segment>(0).step()][from];
    }
    return verdict::deliver;
  });
  check_balanced(run.run().summary, workers);
  for (auto& [number, senders] : averages)
    BOOST_TEST(senders.size() == workers, "average " << number);
  // 320 gradients. An average begins after 8 gradients of the fastest worker. Three of the other
  // workers make the same number, and one makes at least one.
  BOOST_TEST(averages.size() >= 320 / (4 * 8));
  BOOST_TEST(averages.size() <= 320 / (3 * 7) + 4);
}

// With workers of any speed and links of any delay, the trained samples add up, and all workers
// end.
BOOST_AUTO_TEST_CASE(any_timing) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const std::size_t crew = seed % 5 + 1;
    auto job = contributing({"data.digits={train: 1280 test: 20}"});
    if (seed % 3 == 0)
      apply_override(job, "local_sgd.outer={kind: NESTEROV rate: 0.7 momentum: 0.5}");
    if (seed % 4 == 0)
      apply_override(job, "local_sgd.every=" + std::to_string(seed));
    auto options = simulated(job, crew, 0, seed);
    options.links.latency = 100us * (seed % 7);
    options.links.jitter = 700us * (seed % 3);
    options.gradient_done = [seed](std::size_t worker, std::chrono::nanoseconds now) {
      const auto noise = (static_cast<std::uint64_t>(now.count()) / 1000 + worker * 7919) * seed;
      return now + 100us * (1 + noise % 97 + (worker == seed % 3 ? 300 : 0));
    };
    BOOST_TEST_CONTEXT("seed " << seed << ", " << crew << " workers") {
      const auto result = simulate(options);
      check_balanced(result.summary, crew);
      BOOST_TEST(result.summary.test_loss < 2.3);
      for (auto& node : result.nodes)
        BOOST_TEST(node.has_value());
    }
  }
}

// The workers have made different numbers of steps since the last average.
BOOST_AUTO_TEST_CASE(a_run_that_ends_early) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    for (const auto* outer : {"local_sgd.every=8", "local_sgd.outer={}"})
      BOOST_TEST_CONTEXT("seed " << seed << ", " << outer) {
        auto options = with_a_slow_worker(
          contributing({"epochs=1000", "early_stopping={patience: 1 min_delta: 100}", outer}),
          2 + seed % 3, seed);
        options.links.latency = 100us * (seed % 7);
        options.links.jitter = 700us * (seed % 3);
        const auto result = simulate(options);
        BOOST_TEST(result.summary.failure == "");
        BOOST_TEST(!result.summary.ended_early.empty());
        BOOST_TEST(result.summary.test_loss < 2.3);
        for (auto& node : result.nodes)
          BOOST_TEST(node.has_value());
      }
}

BOOST_AUTO_TEST_CASE(the_ledger_balances_in_all_ways) {
  for (const auto how : all_ways)
    check_balanced(train(how, contributing(), workers, 0), workers);
}

// From the third epoch on, the rate is almost 0, so the weights do not change.
BOOST_AUTO_TEST_CASE(the_schedule_counts_the_samples_of_all_workers) {
  const auto after = [](const std::string& epochs) {
    return weights_of(contributing(
      {"epochs=" + epochs, "learning_rate={base: 0.1 step {every_epochs: 2 factor: 1e-20}}"}));
  };
  const auto two = after("2");
  check_near(after("4"), two);
  BOOST_TEST((after("1") != two));
}

BOOST_AUTO_TEST_CASE(one_worker_is_a_serial_loop) {
  auto plain = contributing();
  plain.mutable_local_sgd()->clear_behind();
  BOOST_TEST((weights_of(contributing(), 1) == weights_of(plain, 1)));
}

// The run needs all replicas.
BOOST_AUTO_TEST_CASE(a_worker_that_stops_ends_the_run) {
  for (auto when = 5ms; when < 60ms; when += 11ms)
    for (const bool politely : {false, true}) {
      simulation run{with_a_slow_worker(contributing())};
      run.at(when, [&] {
        if (politely)
          run.stop(run.worker_node(2), "SIGTERM");
        else
          run.crash(run.worker_node(2));
      });
      const auto result = run.run();
      BOOST_TEST(result.summary.failure.find("worker/2") != std::string::npos,
                 result.summary.failure);
      for (auto& node : result.nodes)
        BOOST_TEST(node.has_value());
    }
}

BOOST_AUTO_TEST_SUITE_END()
