// Asynchronous training with `async_ps.buffer`: an update of the weights combines several
// gradients.

#include "actors/checkpoint/resume.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"

#include <boost/test/unit_test.hpp>

#include <random>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t samples = 2 * 96;

/// A job with 24 gradients in each of its 2 epochs.
proto::Job small_job(const std::string& async_ps, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{
    "async_ps={" + async_ps + "}",  "data.digits={train: 96 test: 4}", "data.batch=4", "epochs=2",
    "model.layer[0].dense.units=2", "runtime.request_timeout_ms=20"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

/// Number of updates in an epoch of 24 gradients. Each update combines `buffer` gradients.
std::uint64_t updates_of(std::uint64_t buffer) {
  return (24 + buffer - 1) / buffer;
}

void check_complete(const run_summary& x) {
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == samples);
  BOOST_TEST(x.split == 0U);
}

/// Options of a run that continues from the checkpoint `name` of a run with `options`.
simulation_options going_on(const simulation_options& options, const std::string& name) {
  const auto context = make_job_context(options.job, shape_of(*options.data.train));
  auto result = options;
  result.files = nullptr;
  result.resume = std::make_shared<checkpoint>(
    fit_checkpoint(read_checkpoint(*options.files, checkpoint_folder("out") / name), *context));
  return result;
}

} // namespace

BOOST_AUTO_TEST_SUITE(buffer)

BOOST_AUTO_TEST_CASE(a_buffer_of_one_changes_nothing) {
  for (const std::size_t workers : {1, 3}) {
    const auto without = simulate(simulated(small_job(""), workers, 2)).summary;
    const auto one = simulate(simulated(small_job("buffer: 1"), workers, 2)).summary;
    check_complete(one);
    BOOST_TEST(one.weights_sha256 == without.weights_sha256);
  }
}

// With a single worker, `buffer: n` and `accumulate: n` combine the same gradients in an update.
BOOST_AUTO_TEST_CASE(one_worker_equals_accumulation) {
  for (const std::uint64_t buffer : {2, 5, 24, 30})
    for (const std::size_t ps : {1, 3})
      BOOST_TEST_CONTEXT("buffer " << buffer << ", " << ps << " shards") {
        const auto held =
          simulate(simulated(small_job("buffer: " + std::to_string(buffer)), 1, ps)).summary;
        check_complete(held);
        BOOST_TEST(held.applied == 48 * ps);
        BOOST_TEST(held.tasks.back().steps == 2 * updates_of(buffer));
        const auto expected =
          simulate(simulated(small_job("", {"accumulate=" + std::to_string(buffer)}), 1, ps))
            .summary;
        BOOST_TEST(expected.failure == "");
        BOOST_TEST(held.weights_sha256 == expected.weights_sha256);
      }
}

BOOST_AUTO_TEST_CASE(updates_are_fewer_and_gradients_are_all_applied) {
  for (const auto* more : {"", " compensation: NONE", " max_staleness: 2"})
    BOOST_TEST_CONTEXT(more) {
      const auto x = simulate(simulated(small_job(std::string{"buffer: 5"} + more), 4, 3)).summary;
      check_complete(x);
      BOOST_TEST(x.applied == 48 * 3U);
      BOOST_TEST(x.lost == 0U);
      // Each shard makes all updates, for its own range of the weights.
      for (const auto& task : x.tasks)
        if (task.task.job == job_kind::ps)
          BOOST_TEST(task.steps == 2 * updates_of(5));
    }
}

// Messages arrive late, twice, or not at all, and workers have random speeds. Every gradient is
// applied once, and all shards have made the same number of updates.
BOOST_AUTO_TEST_CASE(many_orders_of_messages) {
  std::uint64_t lost = 0;
  std::uint64_t repeated = 0;
  for (std::uint64_t seed = 1; seed <= tries(300); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const std::size_t workers = 1 + seed % 5;
      const auto buffer = 2 + seed % 7;
      auto random = std::make_shared<std::mt19937_64>(seed);
      auto options = simulated(
        small_job("buffer: " + std::to_string(buffer) + (seed % 3 == 0 ? " max_staleness: 1" : "")),
        workers, 1 + seed % 3, seed);
      options.gradient_done = [random](std::size_t worker, std::chrono::nanoseconds now) {
        return now + std::chrono::microseconds{(worker == 0 ? 3 : 1) * (100 + (*random)() % 300)};
      };
      simulation run{options};
      auto left = std::make_shared<int>(2);
      run.network().judge_with([&, random, left](sim_node, sim_node, const caf::message& x) {
        if (!x.match_elements<proto::Frame, caf::message>())
          return verdict::deliver;
        const auto& inner = x.get_as<caf::message>(1);
        if (inner.empty()
            || !(inner.match_element<proto::Commit>(0) || inner.match_element<proto::Pushed>(0)
                 || inner.match_element<proto::Push>(0) || inner.match_element<proto::Ack>(0)
                 || inner.match_element<proto::IdleWorkers>(0)))
          return verdict::deliver;
        if (*left > 0 && (*random)() % 40 == 0) {
          --*left;
          ++lost;
          return verdict::drop;
        }
        if ((*random)() % 12 != 0)
          return verdict::deliver;
        ++repeated;
        return verdict::duplicate;
      });
      const auto x = run.run().summary;
      check_complete(x);
      BOOST_TEST(x.lost == 0U);
      for (const auto& task : x.tasks)
        if (task.task.job == job_kind::ps)
          BOOST_TEST(task.steps == 2 * updates_of(buffer));
    }
  BOOST_TEST(lost > tries(300));
  BOOST_TEST(repeated > tries(300));
}

BOOST_AUTO_TEST_CASE(workers_that_leave_or_vanish) {
  for (std::uint64_t seed = 1; seed <= tries(30); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      auto options = simulated(small_job("buffer: 3"), 3, 2, seed);
      options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1ms; };
      simulation run{options};
      const auto node = run.worker_node(seed % 3);
      run.at(5ms + seed * 937us, [&] {
        if (seed % 2 == 0)
          run.stop(node, "SIGTERM");
        else
          run.crash(node);
      });
      check_complete(run.run().summary);
    }
}

// A checkpoint is taken between two updates, never while a buffer of gradients is partly filled.
BOOST_AUTO_TEST_CASE(a_run_goes_on_from_a_checkpoint) {
  for (const std::size_t workers : {1, 3}) {
    auto options = simulated(
      small_job("buffer: 5", {"output=out", "checkpoint={every_steps: 1 keep: 100}"}), workers, 2);
    options.files = std::make_shared<memory_storage>();
    const auto whole = simulate(options).summary;
    check_complete(whole);
    std::size_t tried = 0;
    for (const auto& name : options.files->directories(checkpoint_folder("out"))) {
      const auto again = going_on(options, name);
      const auto before = again.resume->manifest.samples;
      const auto x = simulate(again).summary;
      BOOST_TEST(x.failure == "");
      BOOST_TEST(x.samples + before == samples);
      if (workers == 1)
        BOOST_TEST(x.weights_sha256 == whole.weights_sha256);
      ++tried;
    }
    BOOST_TEST(tried >= 8U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
