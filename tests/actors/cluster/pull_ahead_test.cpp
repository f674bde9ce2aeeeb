// Early pulls (`pull_ahead`): a worker asks for weights some steps before it needs them.

#include "actors/checkpoint/resume.hpp"
#include "actors/model/protocol_traits.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/example_job.hpp"
#include "tests/support/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <fstream>
#include <map>
#include <random>
#include <utility>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(pull_ahead)

namespace {

/// A job with 24 gradients in each of its 2 epochs. The worker pulls `ahead` steps early.
proto::Job small_job(std::uint64_t ahead, const std::vector<std::string>& more = {}) {
  std::vector<std::string> changes{"pull_ahead=" + std::to_string(ahead),
                                   "data.digits={train: 96 test: 4}",
                                   "data.batch=4",
                                   "epochs=2",
                                   "model.layer[0].dense.units=2",
                                   "runtime.request_timeout_ms=200"};
  changes.insert(changes.end(), more.begin(), more.end());
  return example_job("digits_mlp", changes);
}

void check_complete(const run_summary& x) {
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == 192U);
  BOOST_TEST(x.split == 0U);
}

/// The message of type Header in a frame. Null if the message has another type.
template <class Header>
const Header* find(const caf::message& content) {
  if (!content.match_elements<proto::Frame, caf::message>())
    return nullptr;
  const auto& inner = content.get_as<caf::message>(1);
  return !inner.empty() && inner.match_element<Header>(0) ? &inner.get_as<Header>(0) : nullptr;
}

simulation_options computing(simulation_options how, std::chrono::nanoseconds time) {
  how.gradient_done = [time](std::size_t, std::chrono::nanoseconds now) { return now + time; };
  return how;
}

} // namespace

// With `pull_ahead: n`, the worker asks for the weights of step t when step t - n begins. So these
// weights lack the updates of the n steps before step t. In the first n steps, fewer updates are
// missing.
BOOST_AUTO_TEST_CASE(weights_are_those_of_some_steps_before) {
  for (const auto* protocol : {"ASYNC_PS", "SSP"})
    for (const std::uint64_t ahead : {0, 1, 2, 4})
      BOOST_TEST_CONTEXT(protocol << ", " << ahead << " steps ahead") {
        const std::string changed = std::string{"protocol="} + protocol;
        simulation run{computing(simulated(small_job(ahead, {changed}), 1, 1), 5ms)};
        std::vector<std::uint64_t> missing;
        std::uint64_t last = 0;
        run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
          const auto* x = find<proto::Commit>(content);
          // To say that it pauses, a worker repeats its last commit. This is not a new step.
          if (x && std::exchange(last, x->id().sequence()) != x->id().sequence())
            missing.push_back(missing.size() - x->base_version());
          return verdict::deliver;
        });
        const auto result = run.run().summary;
        check_complete(result);
        BOOST_TEST_REQUIRE(missing.size() == 48U);
        std::uint64_t expected = 0;
        std::size_t restarts = 0;
        for (const auto x : missing) {
          if (x == 0 && ahead > 0 && expected > 0) {
            ++restarts;
            expected = 0;
          }
          BOOST_TEST(x == expected);
          expected = std::min(expected + 1, ahead);
        }
        // Once, between the two epochs, the worker had no next batch. It dropped its early weights
        // and started again.
        BOOST_TEST(restarts == (ahead > 0 ? 1U : 0U));
        BOOST_TEST(result.staleness_mean > 0.9 * static_cast<double>(ahead) - 0.3);
      }
}

// A pull takes 40 ms, a gradient 30 ms, and a commit 40 ms. An early pull costs no time, because
// gradients and commits take place meanwhile. Without pull_ahead, ASYNC_PS sends each pull together
// with the commit.
BOOST_AUTO_TEST_CASE(pulls_take_no_time_of_their_own) {
  for (const auto* protocol : {"ASYNC_PS", "SSP"}) {
    std::vector<std::chrono::nanoseconds> times;
    for (const std::uint64_t ahead : {0, 1, 2}) {
      auto job = small_job(ahead, {std::string{"protocol="} + protocol, "epochs=1"});
      job.mutable_data()->mutable_digits()->set_train(960);
      auto how = simulated(job, 2, 1);
      how.links.latency = 20ms;
      how.links.jitter = 0us;
      const auto result = simulate(computing(how, 30ms));
      BOOST_TEST(result.summary.failure == "");
      BOOST_TEST(result.summary.samples == 960U);
      times.push_back(result.virtual_time);
    }
    BOOST_TEST_MESSAGE(protocol << ": " << times[0] / 1ms << ", " << times[1] / 1ms << " and "
                                << times[2] / 1ms << " ms");
    // Each worker makes 120 steps. A step takes at most 70 ms. With SSP and without pull_ahead, a
    // step takes at most 110 ms.
    BOOST_TEST((times[1] < 130 * 70ms));
    if (protocol == std::string_view{"SSP"})
      BOOST_TEST((times[0] - times[1] > 100 * 40ms));
    else
      BOOST_TEST((times[0] < 130 * 70ms));
    BOOST_TEST((times[2] <= times[1] + 100ms));
    // A commit and a pull together take longer than two gradients. So pulling two steps ahead is
    // faster than pulling one step ahead.
    if (adapted_traits(small_job(2, {std::string{"protocol="} + protocol})).overlaps)
      BOOST_TEST((times[1] - times[2] > 1s));
  }
}

// With ASYNC_PS, the worker computes its next gradient while the shard decides about the last one.
// A commit takes 40 ms and a gradient 30 ms, so a step takes as long as a commit. With SSP or with
// a bound on staleness, the worker waits for the decision first, so a step takes longer.
BOOST_AUTO_TEST_CASE(a_gradient_is_decided_while_the_next_one_is_computed) {
  const auto time_of = [](const std::vector<std::string>& changes) {
    auto how = simulated(small_job(3, changes), 1, 2);
    how.links.latency = 20ms;
    how.links.jitter = 0us;
    simulation run{computing(how, 30ms)};
    std::map<std::uint64_t, std::uint64_t> open;
    std::size_t most = 0;
    run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
      if (const auto* x = find<proto::Commit>(content))
        ++open[x->id().sequence()];
      if (const auto* x = find<proto::Pushed>(content); x && x->outcome() == proto::APPLIED)
        --open.begin()->second;
      std::erase_if(open, [](auto& x) { return x.second == 0; });
      most = std::max(most, open.size());
      return verdict::deliver;
    });
    const auto result = run.run();
    check_complete(result.summary);
    BOOST_TEST(most == 1U);
    return result.virtual_time;
  };
  const auto overlapped = time_of({});
  BOOST_TEST((time_of({"async_ps.max_staleness=20"}) - overlapped > 40 * 28ms));
  BOOST_TEST((time_of({"protocol=SSP"}) - overlapped > 500ms));
}

BOOST_AUTO_TEST_CASE(a_run_can_be_repeated) {
  for (const std::uint64_t ahead : {1, 3}) {
    const auto how = computing(simulated(small_job(ahead), 3, 2), 3ms);
    const auto first = simulate(how);
    const auto second = simulate(how);
    check_complete(first.summary);
    BOOST_TEST(first.trace_hash == second.trace_hash);
    BOOST_TEST(first.summary.weights_sha256 == second.summary.weights_sha256);
  }
}

// The shards reject a gradient that is too stale. The worker then drops its early weights, and
// computes the gradient again from newer weights until it is accepted.
BOOST_AUTO_TEST_CASE(gradients_that_are_too_stale) {
  std::uint64_t rejected = 0;
  for (const std::uint64_t most : {0, 1, 3})
    for (const std::uint64_t ahead : {1, 3}) {
      const auto bound = "async_ps.max_staleness=" + std::to_string(most);
      const auto result =
        simulate(computing(simulated(small_job(ahead, {bound}), 3, 2), 3ms)).summary;
      check_complete(result);
      rejected += result.rejected_stale;
    }
  BOOST_TEST(rejected > 20U);
}

// Messages arrive late, twice or not at all, and workers stop or crash.
BOOST_AUTO_TEST_CASE(many_orders_of_messages) {
  std::uint64_t lost = 0;
  std::uint64_t repeated = 0;
  for (std::uint64_t seed = 1; seed <= tries(150); ++seed)
    BOOST_TEST_CONTEXT("seed " << seed) {
      const std::size_t workers = 1 + seed % 4;
      const std::vector<std::vector<std::string>> kinds{
        {},
        {"async_ps.compensation=DC", "optimizer.kind=SGD"},
        {"async_ps.buffer=3"},
        {"async_ps.max_staleness=9"},
        {"protocol=SSP", "ssp.staleness=3"}};
      auto random = std::make_shared<std::mt19937_64>(seed);
      auto options =
        simulated(small_job(1 + seed % 3, kinds[seed % kinds.size()]), workers, 1 + seed % 3, seed);
      options.gradient_done = [random](std::size_t worker, std::chrono::nanoseconds now) {
        return now + std::chrono::microseconds{(worker == 0 ? 3 : 1) * (100 + (*random)() % 900)};
      };
      simulation run{options};
      auto left = std::make_shared<int>(2);
      run.network().judge_with([&, random, left](sim_node, sim_node, const caf::message& x) {
        if (!find<proto::Commit>(x) && !find<proto::Pushed>(x) && !find<proto::Pull>(x)
            && !find<proto::Weights>(x) && !find<proto::Advanced>(x))
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
      if (workers > 1 && seed % 5 < 2)
        run.at(1ms * (3 + seed % 10), [&, seed] {
          if (seed % 5 == 0)
            run.stop(run.worker_node(1), "SIGTERM");
          else
            run.crash(run.worker_node(1));
        });
      check_complete(run.run().summary);
    }
  BOOST_TEST(lost > tries(150));
  BOOST_TEST(repeated > tries(150));
}

// A shard has memory for each version of the weights that a worker may still read. So it never
// waits for a worker before it makes a new version.
BOOST_AUTO_TEST_CASE(shards_do_not_wait_for_readers) {
  for (const std::uint64_t ahead : {1, 4}) {
    auto job = small_job(ahead);
    job.mutable_data()->mutable_digits()->set_train(1920);
    auto how = simulated(job, 4, 1);
    how.one_node = true;
    how.gradient_done = [](std::size_t worker, std::chrono::nanoseconds now) {
      return now + (worker == 0 ? 40ms : 3ms);
    };
    simulation run{how};
    std::uint64_t seen = 0;
    BOOST_TEST(run.run().summary.failure == "");
    for (auto& x : run.seen().progress)
      for (auto& task : x.tasks) {
        ++seen;
        BOOST_TEST(!task.activity.starts_with("waits for readers"), task.activity);
      }
    BOOST_TEST(seen > 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_a_checkpoint) {
  auto options = computing(
    simulated(small_job(2, {"output=out", "checkpoint={every_steps: 5 keep: 100}"}), 3, 2), 3ms);
  options.files = std::make_shared<memory_storage>();
  check_complete(simulate(options).summary);
  const auto context = make_job_context(options.job, shape_of(*options.data.train));
  std::size_t tried = 0;
  for (const auto& name : options.files->directories(checkpoint_folder("out"))) {
    auto again = options;
    again.files = nullptr;
    again.resume = std::make_shared<checkpoint>(
      fit_checkpoint(read_checkpoint(*options.files, checkpoint_folder("out") / name), *context));
    const auto x = simulate(again).summary;
    BOOST_TEST(x.failure == "");
    BOOST_TEST(x.samples + again.resume->manifest.samples == 192U);
    ++tried;
  }
  BOOST_TEST(tried >= 3U);
}

// A pull or push usually transfers only the rows that the batch uses. An early pull is sent before
// its batch is known, so it transfers all rows.
BOOST_AUTO_TEST_CASE(tables_whose_rows_a_batch_names) {
  const temporary_directory folder;
  const auto path = (folder.path() / "records.libsvm").string();
  std::ofstream file{path};
  for (int i = 0; i < 96; ++i)
    file << i % 3 << ' ' << 1 + 50 * (i % 40) << ":1 " << 2 + 50 * (i % 40) << ":" << 1 + i % 2
         << '\n';
  file.close();
  auto job = small_job(2);
  job.clear_data();
  job.mutable_data()->mutable_libsvm()->set_path(path);
  job.mutable_data()->mutable_libsvm()->set_features(2000);
  job.mutable_data()->set_batch(4);
  auto how = computing(simulated(job, 1, 2), 3ms);
  const auto apart = simulate(how).summary;
  how.one_node = true;
  const auto together = simulate(how).summary;
  check_complete(apart);
  BOOST_TEST(apart.weights_sha256 == together.weights_sha256);
}

BOOST_AUTO_TEST_CASE(one_process_and_several) {
  for (const auto* protocol : {"ASYNC_PS", "SSP"})
    for (const auto how : {way::here, way::processes})
      BOOST_TEST_CONTEXT(protocol << ' ' << how) {
        const auto job =
          small_job(2, {std::string{"protocol="} + protocol, "runtime.request_timeout_ms=10000"});
        check_complete(train(how, job, 2, 2));
      }
}

BOOST_AUTO_TEST_SUITE_END()
