// Simulated elastic runs: tasks are lost, come back, and join, and training continues.

#include "tests/actors/cluster/resumed_runs.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <string>
#include <utility>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(elastic)

namespace {

/// A job with 40 steps of 10 ms. A checkpoint follows every fifth step. With two workers, it has 80
/// gradients.
proto::Job elastic_job(std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"elastic={rejoin_timeout_ms: 2000}", "epochs=8"});
  return forty_steps(more, 5);
}

simulation_options cluster_of(const proto::Job& job, std::size_t workers, std::size_t ps,
                              std::uint64_t seed = 1) {
  auto result = simulated(job, workers, ps, seed);
  result.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 10ms; };
  result.files = std::make_shared<memory_storage>();
  return result;
}

std::size_t told(const simulation& run, const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
    run.seen().notices, [&](auto& x) { return x.text.find(text) != std::string::npos; }));
}

void check_survivors(const simulation_result& x) {
  BOOST_TEST(x.summary.failure == "");
  for (std::size_t i = 0; i < x.nodes.size(); ++i)
    BOOST_TEST_CONTEXT("node " << i) {
      BOOST_TEST_REQUIRE(x.nodes[i].has_value());
      // The second text is that of a node that crashed.
      BOOST_TEST((x.nodes[i]->failure == "" || x.nodes[i]->failure == "this node has ended"),
                 x.nodes[i]->failure);
    }
}

const std::vector<proto::Protocol> in_step{proto::SYNC_PS, proto::RING};

std::string change_to(proto::Protocol x) {
  return "protocol=" + proto::Protocol_Name(x);
}

/// `n` if the protocol uses parameter servers, else 0.
std::size_t servers_for(proto::Protocol x, std::size_t n) {
  return test::traits_of(x).uses_shards() ? n : 0;
}

} // namespace

// A task crashes and is restarted. The run continues from its newest checkpoint with the same
// number of workers, so its weights equal those of an undisturbed run, bit for bit.
BOOST_AUTO_TEST_CASE(a_lost_task_comes_back) {
  some_cases chosen;
  for (const auto protocol : in_step)
    for (const bool server : {false, true})
      for (const auto when : {3ms, 45ms, 131ms, 277ms, 391ms, 399ms})
        if ((!server || servers_for(protocol, 2) > 0) && chosen())
          BOOST_TEST_CONTEXT(change_to(protocol) << (server ? ", ps/0" : ", worker/1") << ", "
                                                 << when.count() << " ms") {
            const auto job = elastic_job({change_to(protocol)});
            const auto ps = servers_for(protocol, 2);
            const auto undisturbed = simulate(cluster_of(job, 2, ps));
            BOOST_TEST_REQUIRE(undisturbed.summary.failure == "");
            simulation run{cluster_of(job, 2, ps)};
            const auto victim = server ? run.ps_node(0) : run.worker_node(1);
            run.at(when, [&] { run.crash(victim); });
            run.at(when + 700ms, [&] { run.restart(victim); });
            const auto result = run.run();
            check_survivors(result);
            BOOST_TEST(result.summary.weights_sha256 == undisturbed.summary.weights_sha256);
            BOOST_TEST(result.summary.test_loss == undisturbed.summary.test_loss);
            BOOST_TEST(result.summary.split == 0U);
          }
}

BOOST_AUTO_TEST_CASE(a_lost_task_does_not_come_back) {
  for (const auto protocol : {proto::SYNC_PS, proto::RING, proto::LOCAL_SGD})
    BOOST_TEST_CONTEXT(change_to(protocol)) {
      // LOCAL_SGD can write a checkpoint only after a step that makes the weights of all workers
      // equal.
      auto changes = equal_after_every_step(protocol);
      changes.insert(changes.begin(), change_to(protocol));
      const auto job = elastic_job(changes);
      const auto ps = servers_for(protocol, 1);
      const auto undisturbed = simulate(cluster_of(job, 3, ps));
      for (const std::size_t which : {0, 1, 2}) {
        simulation run{cluster_of(job, 3, ps)};
        run.at(131ms, [&] { run.crash(run.worker_node(which)); });
        const auto result = run.run();
        check_survivors(result);
        BOOST_TEST(told(run, "going on without worker/" + std::to_string(which)) == 1U);
        BOOST_TEST(told(run, "batch: 16 samples per worker, 32 over 2 of 3 workers") == 1U);
        BOOST_TEST(result.summary.test_loss <= undisturbed.summary.test_loss + 0.02);
      }
    }
}

// One of three workers is lost. The others keep their batch sizes, so an update has fewer samples
// than the job asks for.
BOOST_AUTO_TEST_CASE(a_global_batch_without_a_worker) {
  auto job = elastic_job({"protocol=RING"});
  job.mutable_data()->clear_batch();
  job.mutable_data()->set_global_batch(48);
  simulation run{cluster_of(job, 3, 0)};
  run.at(131ms, [&] { run.crash(run.worker_node(1)); });
  check_survivors(run.run());
  BOOST_TEST(told(run,
                  "batch: 16 samples per worker, 32 over 2 of 3 workers, of "
                  "data.global_batch: 48")
             == 1U);
}

// A lost parameter server must come back, because no other server has its range of the weights.
BOOST_AUTO_TEST_CASE(a_parameter_server_must_come_back) {
  simulation run{cluster_of(elastic_job({"protocol=ASYNC_PS"}), 2, 3)};
  run.at(55ms, [&] { run.crash(run.ps_node(1)); });
  const auto result = run.run();
  BOOST_TEST(result.summary.failure.find("missing ps/1") != std::string::npos,
             result.summary.failure);
  simulation again{cluster_of(elastic_job({"protocol=ASYNC_PS"}), 2, 3)};
  again.at(55ms, [&] { again.crash(again.ps_node(1)); });
  again.at(20s, [&] { again.restart(again.ps_node(1)); });
  check_survivors(again.run());
}

// Worker 0 is lost and never comes back. Worker 1 is lost later and comes back. Then a new view
// (set of tasks that train together) opens without worker 0.
BOOST_AUTO_TEST_CASE(two_asynchronous_workers_are_lost) {
  for (const auto protocol : {proto::ASYNC_PS, proto::SSP})
    BOOST_TEST_CONTEXT(change_to(protocol)) {
      const auto job = elastic_job({change_to(protocol)});
      const auto undisturbed = simulate(cluster_of(job, 3, 2));
      simulation run{cluster_of(job, 3, 2)};
      run.at(35ms, [&] { run.crash(run.worker_node(0)); });
      run.at(55ms, [&] { run.crash(run.worker_node(1)); });
      run.at(111ms, [&] { run.restart(run.worker_node(1)); });
      const auto result = run.run();
      check_survivors(result);
      BOOST_TEST(told(run, "the others train its samples") == 2U);
      BOOST_TEST(told(run, "going on without worker/0") == 1U);
      BOOST_TEST(told(run, "batch: 16 samples per worker, 32 over 2 of 3 workers") == 2U);
      BOOST_TEST(told(run, "batch: 16 samples per worker, 16 over 1 of 3 workers") == 1U);
      BOOST_TEST(result.summary.test_loss <= undisturbed.summary.test_loss + 0.1);
    }
}

BOOST_AUTO_TEST_CASE(too_few_workers_are_left) {
  const std::pair<std::string, std::size_t> settings[] = {{"RING", 0}, {"ASYNC_PS", 1}};
  for (const auto& [protocol, ps] : settings)
    BOOST_TEST_CONTEXT(protocol) {
      const auto job = elastic_job({"protocol=" + protocol, "elastic.min_workers=2"});
      simulation run{cluster_of(job, 2, ps)};
      run.at(55ms, [&] { run.crash(run.worker_node(1)); });
      const auto result = run.run();
      BOOST_TEST(result.summary.failure.find("missing worker/1") != std::string::npos,
                 result.summary.failure);
      BOOST_TEST((result.virtual_time > 60s && result.virtual_time < 70s));
    }
}

// A worker leaves. The others write a checkpoint, and wait until there are enough workers again.
BOOST_AUTO_TEST_CASE(too_few_workers_stay) {
  const auto job = elastic_job({"protocol=ASYNC_PS", "elastic.min_workers=2"});
  simulation run{cluster_of(job, 2, 1)};
  run.at(55ms, [&] { run.stop(run.worker_node(1), "SIGTERM"); });
  run.at(900ms, [&] { run.restart(run.worker_node(1)); });
  const auto result = run.run();
  BOOST_TEST(result.summary.failure == "");
  BOOST_TEST(result.summary.workers == 2U);
  BOOST_TEST(told(run, "stopping (worker/1 left, and fewer than elastic.min_workers are present)")
             == 1U);
}

// An asynchronous worker is lost. The other workers continue at once. When the lost worker is back,
// a new view (set of tasks that train together) opens with all workers.
BOOST_AUTO_TEST_CASE(an_asynchronous_worker_comes_back) {
  for (const auto protocol : {proto::ASYNC_PS, proto::SSP})
    BOOST_TEST_CONTEXT(change_to(protocol)) {
      const auto job = elastic_job({change_to(protocol)});
      const auto undisturbed = simulate(cluster_of(job, 3, 2));
      simulation run{cluster_of(job, 3, 2)};
      run.at(55ms, [&] { run.crash(run.worker_node(1)); });
      run.at(111ms, [&] { run.restart(run.worker_node(1)); });
      const auto result = run.run();
      check_survivors(result);
      BOOST_TEST(told(run, "the others train its samples") == 1U);
      BOOST_TEST(told(run, "worker/1 joins") >= 1U);
      BOOST_TEST(told(run, "batch: 16 samples per worker, 32 over 2 of 3 workers") == 1U);
      BOOST_TEST(told(run, "batch: 16 samples per worker, 48 over all 3 workers") == 1U);
      BOOST_TEST(told(run, "going on without") == 0U);
      BOOST_TEST(result.summary.workers == 3U);
      BOOST_TEST(result.summary.gone.size() == 0U);
      BOOST_TEST(result.summary.test_loss <= undisturbed.summary.test_loss + 0.1);
    }
}

// An operator stops a worker with SIGTERM and starts it again, for example on another host.
BOOST_AUTO_TEST_CASE(a_single_task_is_stopped) {
  const auto job = elastic_job({"protocol=RING"});
  const auto undisturbed = simulate(cluster_of(job, 2, 0));
  simulation run{cluster_of(job, 2, 0)};
  run.at(131ms, [&] { run.stop(run.worker_node(1), "SIGTERM"); });
  run.at(900ms, [&] { run.restart(run.worker_node(1)); });
  const auto result = run.run();
  check_survivors(result);
  BOOST_TEST(result.summary.weights_sha256 == undisturbed.summary.weights_sha256);
}

BOOST_AUTO_TEST_CASE(the_whole_run_is_stopped) {
  // The signal comes in the first view (set of tasks that train together), between two views, or
  // while the nodes learn that a view is over.
  for (const auto when : {131ms, 200ms, 700ms, 132ms})
    BOOST_TEST_CONTEXT(when.count() << " ms") {
      simulation run{cluster_of(elastic_job({"protocol=RING"}), 2, 0)};
      if (when > 131ms)
        run.at(131ms, [&] { run.crash(run.worker_node(1)); });
      run.at(when, [&] { run.stop(run.coordinator_node(), "SIGTERM"); });
      const auto result = run.run();
      BOOST_TEST(result.summary.interrupted);
      BOOST_TEST(result.summary.failure.find("checkpoints/step-") != std::string::npos,
                 result.summary.failure);
      // The coordinator was stopped for good. The other nodes end at once and do not wait for it.
      BOOST_TEST((result.virtual_time < 10s));
    }
}

// The coordinator crashes and is restarted. All other tasks wait for it, and take part in its next
// run.
BOOST_AUTO_TEST_CASE(the_coordinator_comes_back) {
  for (const auto protocol : in_step)
    BOOST_TEST_CONTEXT(change_to(protocol)) {
      const auto job = elastic_job({change_to(protocol)});
      const auto ps = servers_for(protocol, 1);
      const auto undisturbed = simulate(cluster_of(job, 2, ps));
      simulation run{cluster_of(job, 2, ps)};
      run.at(131ms, [&] { run.crash(run.coordinator_node()); });
      run.at(2s, [&] { run.restart(run.coordinator_node()); });
      const auto result = run.run();
      check_survivors(result);
      BOOST_TEST(result.summary.weights_sha256 == undisturbed.summary.weights_sha256);
    }
}

BOOST_AUTO_TEST_CASE(losses_without_progress_end_the_run) {
  const auto job =
    elastic_job({"protocol=RING", "checkpoint.every_steps=1000", "elastic.max_losses=2"});
  simulation run{cluster_of(job, 2, 0)};
  auto victim = run.worker_node(1);
  for (int i = 0; i < 3; ++i) {
    run.at(100ms + i * 3s, [&] { run.crash(victim); });
    run.at(200ms + i * 3s, [&] { victim = run.restart(victim); });
    // While the trainer of worker 0 is frozen, the run makes no progress.
    run.at(300ms + i * 3s, [&] { run.freeze(run.worker_node(0), "troupe.trainer"); });
    run.at(3s + i * 3s, [&] { run.thaw(run.worker_node(0), "troupe.trainer"); });
  }
  const auto result = run.run();
  BOOST_TEST(result.summary.failure.find("3 losses in a row") != std::string::npos,
             result.summary.failure);
}

// Tasks crash at random times and come back, also while a view (a set of tasks that train together)
// begins or ends.
BOOST_AUTO_TEST_CASE(random_losses) {
  for (std::uint64_t seed = 1; seed <= tries(90); ++seed) {
    const auto protocol = seed % 3 == 2 ? proto::ASYNC_PS : in_step[seed % 3];
    BOOST_TEST_CONTEXT(change_to(protocol) << ", seed " << seed) {
      const auto job = elastic_job({change_to(protocol), "elastic.max_losses=100"});
      const auto ps = servers_for(protocol, 2);
      const auto undisturbed = simulate(cluster_of(job, 3, ps));
      auto how = cluster_of(job, 3, ps, seed);
      how.channels = seed % 2 == 0;
      simulation run{how};
      std::mt19937_64 random{seed};
      std::vector<sim_node> where(1 + ps + 3);
      std::vector<bool> down(where.size());
      for (std::size_t i = 0; i < where.size(); ++i)
        where[i] = i;
      auto when = 5ms + random() % 200 * 1ms;
      for (int i = 0; i < 4; ++i) {
        const auto which = random() % where.size();
        run.at(when, [&, which] {
          if (!down[which])
            run.crash(where[which]);
          down[which] = true;
        });
        run.at(when + 1ms + random() % 600 * 1ms, [&, which] {
          if (down[which])
            where[which] = run.restart(where[which]);
          down[which] = false;
        });
        when += 1ms + random() % 1500 * 1ms;
      }
      const auto result = run.run();
      if (result.summary.failure == "crashed") {
        // The coordinator crashed, but the other nodes already knew that the run is over.
        BOOST_TEST(result.nodes.back()->failure != "crashed");
        continue;
      }
      check_survivors(result);
      if (told(run, "going on without") == 0 && test::traits_of(protocol).in_step)
        BOOST_TEST(result.summary.weights_sha256 == undisturbed.summary.weights_sha256);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
