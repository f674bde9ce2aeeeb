// Synchronous training with backup workers: a step does not wait for the gradients of the slowest
// workers.

#include "actors/checkpoint/resume.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/input_errors.hpp"

#include <boost/test/unit_test.hpp>

#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(backup_workers)

namespace {

proto::Job small_job(const std::string& sync_ps, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"protocol=SYNC_PS",
                                   "sync_ps={" + sync_ps + "}",
                                   "data.digits={train: 96 test: 4}",
                                   "data.batch=4",
                                   "epochs=2",
                                   "model.layer[0].dense.units=2",
                                   "runtime.request_timeout_ms=20"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

constexpr std::uint64_t samples = 2 * 96;

/// A simulated cluster in which a gradient takes 5 ms on worker 0, and 1 ms on the others.
simulation_options with_a_slow_worker(const proto::Job& job, std::size_t workers, std::size_t ps,
                                      std::uint64_t seed = 1) {
  auto result = simulated(job, workers, ps, seed);
  result.gradient_done = [](std::size_t worker, std::chrono::nanoseconds now) {
    return now + (worker == 0 ? 5ms : 1ms);
  };
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(without_backups_nothing_changes) {
  auto plain = small_job("backup_workers: 0");
  const auto x = simulate(with_a_slow_worker(plain, 3, 2)).summary;
  plain.clear_sync_ps();
  const auto y = simulate(with_a_slow_worker(plain, 3, 2)).summary;
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.rejected_stale == 0U);
  BOOST_TEST(x.weights_sha256 == y.weights_sha256);
}

BOOST_AUTO_TEST_CASE(late_samples_are_trained_again) {
  const auto x = simulate(with_a_slow_worker(small_job("backup_workers: 1"), 4, 2)).summary;
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == samples);
  BOOST_TEST(x.applied == 2 * samples / 4);
  BOOST_TEST(x.rejected_stale > 0U);
  BOOST_TEST(x.rejected_stale % 2 == 0U);
  BOOST_TEST(x.dropped_samples == 0U);
  BOOST_TEST(x.split == 0U);
}

BOOST_AUTO_TEST_CASE(late_samples_are_left_out) {
  const auto job = small_job("backup_workers: 1 late: REJECT");
  const auto x = simulate(with_a_slow_worker(job, 4, 2)).summary;
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.dropped_samples == x.rejected_stale / 2 * 4);
  BOOST_TEST(x.dropped_samples > 0U);
  BOOST_TEST(x.samples + x.dropped_samples == samples);
  BOOST_TEST(x.applied == 2 * x.samples / 4);
  BOOST_TEST(x.split == 0U);
}

// With one backup worker, no step waits for the slow worker 0, so the run takes much less time than
// without. Worker 0 is not reported as a stall.
BOOST_AUTO_TEST_CASE(a_slow_worker_is_not_waited_for) {
  const std::uint64_t records = under_sanitizer ? 480 : 960;
  const auto data = "data.digits={train: " + std::to_string(records) + " test: 4}";
  std::vector<std::chrono::nanoseconds> times;
  for (const auto* const how : {"backup_workers: 0", "backup_workers: 1"}) {
    auto options = with_a_slow_worker(small_job(how, {data}), 4, 1);
    options.gradient_done = [](std::size_t worker, std::chrono::nanoseconds now) {
      return now + (worker == 0 ? 5s : 1s);
    };
    options.limit = std::chrono::hours{2};
    simulation run{options};
    const auto x = run.run();
    BOOST_TEST(x.summary.failure == "");
    BOOST_TEST(x.summary.samples == 2 * records);
    for (auto& notice : run.seen().notices)
      BOOST_TEST(notice.text.find("nothing has moved") == std::string::npos, notice.text);
    times.push_back(x.virtual_time);
  }
  BOOST_TEST(times[0] > 3 * times[1]);
}

// A frozen worker is reported when a step needs its gradient and cannot end without it.
BOOST_AUTO_TEST_CASE(too_many_that_hang_are_a_stall) {
  simulation run{with_a_slow_worker(small_job("backup_workers: 1"), 4, 1)};
  run.at(8ms, [&] {
    run.freeze(run.worker_node(2));
    run.freeze(run.worker_node(3));
  });
  run.at(8s, [&] {
    run.thaw(run.worker_node(2));
    run.thaw(run.worker_node(3));
  });
  const auto x = run.run().summary;
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == samples);
  BOOST_TEST(std::ranges::any_of(run.seen().notices, [](auto& notice) {
    return notice.text.find("worker/2") != std::string::npos
      && notice.text.find("worker/3") != std::string::npos;
  }));
}

// Messages arrive late, twice, or not at all, and workers have random speeds. All shards apply the
// same gradients, and each sample is trained once or counted as dropped.
BOOST_AUTO_TEST_CASE(a_thousand_orders_of_messages) {
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= tries(1'000); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const std::size_t workers = 2 + seed % 4;
      const auto backup = 1 + seed % (workers - 1);
      const bool reject = seed % 3 == 0;
      const auto job =
        small_job("backup_workers: " + std::to_string(backup) + (reject ? " late: REJECT" : ""),
                  {"data.digits={train: 48 test: 4}",
                   seed % 5 == 0 ? "optimizer.clip_norm=1" : "optimizer.clip_norm=0"});
      auto random = std::make_shared<std::mt19937_64>(seed);
      auto options = simulated(job, workers, 1 + seed % 3, seed);
      options.gradient_done = [random](std::size_t worker, std::chrono::nanoseconds now) {
        const auto slow = (*random)() % 4 == 0 ? 5 : 1;
        return now
          + std::chrono::microseconds{(worker == 0 ? 3 : 1) * slow * (100 + (*random)() % 300)};
      };
      simulation run{options};
      auto left = std::make_shared<int>(2);
      run.network().judge_with([&, random, left](sim_node, sim_node, const caf::message& x) {
        if (!x.match_elements<proto::Frame, caf::message>())
          return verdict::deliver;
        const auto& inner = x.get_as<caf::message>(1);
        if (inner.empty()
            || !(inner.match_element<proto::Commit>(0) || inner.match_element<proto::Advanced>(0)
                 || inner.match_element<proto::Pushed>(0) || inner.match_element<proto::Push>(0)
                 || inner.match_element<proto::StepParts>(0)
                 || inner.match_element<proto::IdleWorkers>(0)))
          return verdict::deliver;
        if (*left > 0 && (*random)() % 40 == 0) {
          --*left;
          ++lost;
          return verdict::drop;
        }
        return (*random)() % 12 == 0 ? verdict::duplicate : verdict::deliver;
      });
      const auto x = run.run().summary;
      BOOST_TEST(x.failure == "");
      BOOST_TEST(x.samples + x.dropped_samples == 96U);
      BOOST_TEST((reject || x.dropped_samples == 0));
      BOOST_TEST(x.split == 0U);
      BOOST_TEST(x.lost == 0U);
      late += x.rejected_stale;
      dropped += x.dropped_samples;
    }
  BOOST_TEST(late > tries(1'000));
  BOOST_TEST(dropped > tries(1'000));
  BOOST_TEST(lost > tries(1'000));
}

BOOST_AUTO_TEST_CASE(a_worker_may_leave) {
  for (std::uint64_t seed = 1; seed <= tries(20); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      simulation run{with_a_slow_worker(small_job("backup_workers: 1"), 3, 2, seed)};
      run.at(5ms + seed * 937us, [&] { run.stop(run.worker_node(seed % 3), "SIGTERM"); });
      const auto x = run.run().summary;
      BOOST_TEST(x.failure == "");
      BOOST_TEST(x.samples == samples);
      BOOST_TEST(x.split + x.lost == 0U);
    }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_a_checkpoint) {
  const auto job =
    small_job("backup_workers: 1", {"output=out", "checkpoint={every_steps: 1 keep: 100}"});
  auto options = with_a_slow_worker(job, 4, 2);
  options.files = std::make_shared<memory_storage>();
  BOOST_TEST(simulate(options).summary.failure == "");
  const auto context = make_job_context(job, shape_of(*options.data.train));
  const auto folder = checkpoint_folder("out");
  std::size_t tried = 0;
  for (const auto& name : options.files->directories(folder)) {
    auto again = options;
    again.files = nullptr;
    again.resume = std::make_shared<checkpoint>(
      fit_checkpoint(read_checkpoint(*options.files, folder / name), *context));
    const auto before = again.resume->manifest.samples;
    const auto x = simulate(again).summary;
    BOOST_TEST(x.failure == "");
    BOOST_TEST(x.samples + before == samples);
    ++tried;
  }
  BOOST_TEST(tried > 8U);
}

// Workers are lost at random times. Either all shards apply the gradient of a lost worker, or no
// shard does. A shard that received nothing of the gradient is the only exception.
BOOST_AUTO_TEST_CASE(workers_may_be_lost) {
  std::uint64_t applied_in_part = 0;
  for (std::uint64_t seed = 1; seed <= tries(300); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const std::size_t workers = 3 + seed % 3;
      const bool reject = seed % 3 == 0;
      const auto backup = 1 + seed % (workers - 1);
      const auto job =
        small_job("backup_workers: " + std::to_string(backup) + (reject ? " late: REJECT" : ""),
                  {seed % 5 == 0 ? "optimizer.clip_norm=1" : "optimizer.clip_norm=0",
                   "runtime.request_timeout_ms=200"});
      auto options = simulated(job, workers, 1 + seed % 3, seed);
      auto random = std::make_shared<std::mt19937_64>(seed);
      options.gradient_done = [random](std::size_t, std::chrono::nanoseconds now) {
        return now + std::chrono::microseconds{500 + (*random)() % 3000};
      };
      simulation run{options};
      // Every second run loses a second worker, sometimes in the same step.
      const auto when = 5ms + seed * 137us;
      run.at(when, [&] { run.crash(run.worker_node(1)); });
      if (seed % 2 == 0)
        run.at(when + 100us * (seed % 40), [&] { run.crash(run.worker_node(2)); });
      const auto x = run.run().summary;
      BOOST_TEST(x.failure == "");
      BOOST_TEST(x.samples + x.dropped_samples == samples);
      BOOST_TEST((reject || x.dropped_samples == 0));
      BOOST_TEST(x.split == 0U);
      applied_in_part += x.lost > 0 ? 1 : 0;
    }
  BOOST_TEST(applied_in_part < tries(300) / 4);
}

// Three of four workers are lost, but only one is a backup. Each step then uses the gradients of
// the workers that remain.
BOOST_AUTO_TEST_CASE(more_workers_may_be_lost_than_are_spare) {
  simulation run{with_a_slow_worker(small_job("backup_workers: 1"), 4, 2)};
  for (const std::size_t i : {1, 2, 3})
    run.at(i * 5ms, [&run, i] { run.crash(run.worker_node(i)); });
  const auto x = run.run().summary;
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == samples);
}

BOOST_AUTO_TEST_CASE(without_backups_a_lost_worker_ends_the_run) {
  simulation run{with_a_slow_worker(small_job("backup_workers: 0"), 4, 1)};
  run.at(6ms, [&] { run.crash(run.worker_node(2)); });
  const auto x = run.run().summary;
  BOOST_TEST(x.failure.find("worker/2") != std::string::npos, x.failure);
}

BOOST_AUTO_TEST_CASE(a_step_needs_a_worker) {
  const auto job = small_job("backup_workers: 3");
  BOOST_TEST(contains(error_of([&] { simulate(simulated(job, 3, 1)); }),
                      "sync_ps.backup_workers: 3 of 3 workers would leave no worker for a step"));
}

BOOST_AUTO_TEST_SUITE_END()
