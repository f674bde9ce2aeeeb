// SSP (stale synchronous parallel): no worker gets more than a given number of steps ahead of the
// slowest worker. Each shard checks this at each update, and fails the run if a worker is too far
// ahead.

#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(ssp)

namespace {

proto::Job job_with(std::uint64_t bound, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{
    "data.digits={train: 320 test: 20}", "data.batch=16", "epochs=2",
    "model.layer[0].dense.units=4",      "protocol=SSP",  "ssp.staleness=" + std::to_string(bound),
    "runtime.request_timeout_ms=20"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

/// The message of type T in a frame. Null if `content` is anything else.
template <class T>
const T* carried(const caf::message& content) {
  if (!content.match_elements<proto::Frame, caf::message>())
    return nullptr;
  const auto& inner = content.get_as<caf::message>(1);
  return !inner.empty() && inner.match_element<T>(0) ? &inner.get_as<T>(0) : nullptr;
}

/// Records the newest step of each worker, which each commit contains, and the largest distance
/// between two workers.
struct step_watch {
  std::map<std::uint32_t, std::uint64_t> steps;
  std::uint64_t widest = 0;

  verdict operator()(sim_node, sim_node, const caf::message& content) {
    const auto* x = carried<proto::Commit>(content);
    if (!x)
      return verdict::deliver;
    steps[x->id().worker()] = x->step();
    for (auto& [worker, step] : steps)
      if (steps.size() > 1 && x->step() > step)
        widest = std::max(widest, x->step() - step);
    return verdict::deliver;
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(fast_workers_wait_for_a_slow_one_and_say_so) {
  for (const auto& [bound, ahead] : {std::pair{0, 0}, {2, 0}, {2, 1}, {2, 2}}) {
    auto how = simulated(job_with(static_cast<std::uint64_t>(bound),
                                  {"data.digits={train: 4800 test: 20}", "epochs=1",
                                   "pull_ahead=" + std::to_string(ahead)}),
                         3, 2);
    how.gradient_done = [](std::size_t worker, std::chrono::nanoseconds now) {
      return now + (worker == 1 ? 300ms : 10ms);
    };
    simulation run{how};
    auto watch = std::make_shared<step_watch>();
    run.network().judge_with(
      [watch](sim_node a, sim_node b, const caf::message& x) { return (*watch)(a, b, x); });
    const auto result = run.run().summary;
    BOOST_TEST(result.failure == "");
    BOOST_TEST(result.samples == 4800U);
    std::uint64_t told = 0;
    // A step may begin if the slowest worker is at most `bound` steps behind it. A worker asks for
    // the weights of a step `ahead` steps before that step. So it already waits when the slow
    // worker is `bound - ahead + 1` steps behind the worker's own step.
    const auto steps = bound - ahead + 1;
    const auto behind =
      ", " + std::to_string(steps) + (steps == 1 ? " step behind" : " steps behind");
    for (auto& x : run.seen().progress)
      for (auto& task : x.tasks)
        told += task.activity.starts_with("waits for worker/") && task.activity.ends_with(behind);
    BOOST_TEST(told > 20U);
    // A worker commits the step that it was allowed to begin. At the moment of the commit, it may
    // be one step further ahead than the bound.
    BOOST_TEST(watch->widest == bound + 1);
    // Waiting for a slow worker is not reported as a stall.
    BOOST_TEST(run.seen().notices.empty());
  }
}

// The weights of step c contain all updates of the steps before c - bound. With a bound of 0, they
// contain no other updates. Only the first half of the epoch is checked, because all workers have
// data there.
BOOST_AUTO_TEST_CASE(weights_contain_all_earlier_steps) {
  constexpr std::uint64_t workers = 3;
  for (const std::uint64_t bound : {0, 2})
    for (std::uint64_t seed = 1; seed <= tries(40); ++seed)
      BOOST_TEST_CONTEXT("staleness " << bound << ", seed " << seed) {
        auto how = simulated(job_with(bound, {"data.digits={train: 960 test: 20}", "epochs=1"}),
                             workers, 1 + seed % 3, seed);
        auto random = std::make_shared<std::mt19937_64>(seed);
        how.gradient_done = [random](std::size_t, std::chrono::nanoseconds now) {
          return now + 1ms * (1 + (*random)() % 20);
        };
        simulation run{how};
        std::uint64_t seen = 0;
        std::uint64_t newer = 0;
        run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
          const auto* x = carried<proto::Commit>(content);
          if (!x || x->step() > 10)
            return verdict::deliver;
          ++seen;
          const auto updates = x->base_version();
          if (bound == 0)
            BOOST_TEST(updates == workers * x->step());
          else if (x->step() > bound)
            BOOST_TEST(updates >= workers * (x->step() - bound));
          newer += updates > workers * x->step() ? 1 : 0;
          return verdict::deliver;
        });
        BOOST_TEST(run.run().summary.failure == "");
        BOOST_TEST(seen >= 10 * workers * how.ps);
        BOOST_TEST((bound == 0 || newer > 0));
      }
}

// The slow worker 1 has only one batch in each epoch. When it has no data, other workers do not
// wait for it.
BOOST_AUTO_TEST_CASE(a_worker_with_less_data_holds_nobody) {
  auto how = simulated(job_with(1, {"data.digits={train: 64 test: 20}", "epochs=6"}), 3, 2);
  how.gradient_done = [](std::size_t worker, std::chrono::nanoseconds now) {
    return now + (worker == 1 ? 40ms : 10ms);
  };
  const auto result = simulate(how);
  BOOST_TEST(result.summary.failure == "");
  BOOST_TEST(result.summary.samples == 6 * 64U);
  BOOST_TEST((result.virtual_time < 6 * 100ms));
}

// The message that ends a worker's wait is lost. The worker asks again after some time.
BOOST_AUTO_TEST_CASE(lost_news_cost_time_only) {
  auto how = simulated(job_with(0), 3, 2);
  simulation run{how};
  std::uint64_t lost = 0;
  run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
    if (!carried<proto::Advanced>(content))
      return verdict::deliver;
    ++lost;
    return verdict::drop;
  });
  const auto result = run.run();
  BOOST_TEST(result.summary.failure == "");
  BOOST_TEST(result.summary.samples == 640U);
  BOOST_TEST(lost > 5U);
}

// Gradients take 1 to 20 ms, workers stop and crash, and some batches are not finite. The bound
// always holds.
BOOST_AUTO_TEST_CASE(a_thousand_runs_keep_the_bound) {
  std::uint64_t waits = 0;
  for (std::uint64_t seed = 1; seed <= tries(1'000); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const auto job =
        job_with(seed % 4,
                 {"data.digits={train: 48 test: 4}", "data.batch=4", "epochs=2",
                  "pull_ahead=" + std::to_string(seed / 4 % (1 + seed % 4)),
                  "model.layer[0].dense.units=2", "runtime.request_timeout_ms=2000"});
      auto how = simulated(job, 2 + seed % 3, 1 + seed % 4, seed);
      auto random = std::make_shared<std::mt19937_64>(seed);
      how.gradient_done = [random](std::size_t, std::chrono::nanoseconds now) {
        return now + 1ms * (1 + (*random)() % 20);
      };
      simulation run{how};
      run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
        waits += carried<proto::Advanced>(content) ? 1 : 0;
        return verdict::deliver;
      });
      if (seed % 5 == 0)
        run.at(1ms * (5 + seed % 60), [&] { run.stop(run.worker_node(1), "SIGTERM"); });
      else if (seed % 5 == 1)
        run.at(1ms * (5 + seed % 60), [&] { run.crash(run.worker_node(1)); });
      const auto result = run.run();
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(result.summary.samples == 96U);
      BOOST_TEST(result.summary.split == 0U);
      BOOST_TEST((result.virtual_time < 2s));
    }
  BOOST_TEST(waits > tries(1'000));
}

BOOST_AUTO_TEST_SUITE_END()
