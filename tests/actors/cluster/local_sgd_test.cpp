// LOCAL_SGD: each worker trains its own copy (replica) of the weights, and the copies are averaged
// from time to time.

#include "actors/model/sha256.hpp"
#include "tests/actors/cluster/local_sgd_runs.hpp"
#include "tests/support/effort.hpp"

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(local_sgd)

namespace {

/// Counts the pieces of averages in a simulated network. It can also drop the first requests for
/// weights.
struct watcher {
  std::uint64_t pieces = 0;
  std::uint64_t pulls = 0;
  std::uint64_t lose_pulls = 0;

  verdict operator()(const caf::message& content) {
    if (content.empty() || !content.match_element<proto::Frame>(0))
      return verdict::deliver;
    const auto service = content.get_as<proto::Frame>(0).to().service();
    pieces += service == proto::RING_NODE ? 1 : 0;
    if (service != proto::READER)
      return verdict::deliver;
    return ++pulls <= lose_pulls ? verdict::drop : verdict::deliver;
  }
};

/// Number of pieces that the workers of a run send to compute averages.
std::uint64_t pieces(const proto::Job& job) {
  simulation run{simulated(job, workers, 0)};
  watcher seen;
  run.network().judge_with(
    [&](sim_node, sim_node, const caf::message& content) { return seen(content); });
  BOOST_TEST(run.run().summary.failure == "");
  return seen.pieces;
}

} // namespace

// An average after each step gives the weights of a ring: the mean of w - rate * g over the workers
// is w - rate * (mean of g).
BOOST_AUTO_TEST_CASE(after_each_step_it_is_a_ring) {
  check_near(weights_of(local(1)), weights_of(twenty_steps(proto::RING)));
}

// With a schedule, too.
BOOST_AUTO_TEST_CASE(after_each_step_it_has_the_rates_of_a_ring) {
  const std::vector<std::string> schedule{"learning_rate={base: 0.1 warmup_epochs: 1 cosine {}}"};
  check_near(weights_of(local(1, schedule)), weights_of(twenty_steps(proto::RING, schedule)));
}

// The position in the schedule is that of all workers, also between averages, and if there is no
// average before the end. After two epochs, the rate is practically 0, so two more epochs change
// nothing.
BOOST_AUTO_TEST_CASE(the_schedule_counts_all_workers) {
  const std::string outer = "local_sgd.outer={kind: SGD rate: 1}";
  const auto check = [&](std::uint32_t every, const std::vector<std::string>& how) {
    auto two = how;
    two.emplace_back("epochs=2");
    auto four = how;
    four.emplace_back("learning_rate={base: 0.1 step {every_epochs: 2 factor: 1e-30}}");
    check_near(weights_of(local(every, four)), weights_of(local(every, two)));
  };
  check(1000, {outer});
  check(3, {outer});
  check(3, {});
  check(3, {outer, "local_sgd.fragments=2"});
  check(3, {"local_sgd.behind=CONTRIBUTE"});
}

// `every` is 1000, but an epoch has only one step. So the replicas are averaged only because the
// weights are read after each epoch.
BOOST_AUTO_TEST_CASE(replicas_are_averaged_before_they_are_read) {
  const std::vector<std::string> one_step{"data.batch=80"};
  check_near(weights_of(local(1000, one_step)), weights_of(twenty_steps(proto::RING, one_step)));
}

BOOST_AUTO_TEST_CASE(statistics_are_averaged_too) {
  const std::vector<std::string> changes{
    "model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { dense { units: 10 } } "
    "loss: SOFTMAX_CROSS_ENTROPY }"};
  check_near(weights_of(local(1, changes)), weights_of(twenty_steps(proto::RING, changes)));
}

// When training ends, the replicas have made some steps since the last average. So they are
// averaged once more.
const std::vector<std::string> averages_now_and_then[] = {
  {"local_sgd.every=3"},
  {"local_sgd.every=4", "local_sgd.fragments=2"},
  {"local_sgd.every=3", "local_sgd.outer={}"},
  {"local_sgd={every: 3 behind: CONTRIBUTE}"},
  {"local_sgd={every: 3 behind: CONTRIBUTE outer {}}"},
};

/// A long run with 500 steps in each epoch (50 under a sanitizer). A lease has samples for far
/// fewer steps.
simulation_options long_run(std::vector<std::string> changes) {
  changes.insert(changes.end(),
                 {"data.digits={train: " + std::to_string(tries(2'000)) + " test: 20}",
                  "data.batch=1", "epochs=1000", "checkpoint={every_steps: 1200 keep: 2}"});
  auto result = simulated(twenty_steps(proto::LOCAL_SGD, changes), workers, 0);
  result.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1ms; };
  result.files = std::make_shared<memory_storage>();
  return result;
}

BOOST_AUTO_TEST_CASE(a_run_that_is_stopped_writes_its_state) {
  some_cases chosen;
  for (auto& changes : averages_now_and_then)
    for (auto when = 50ms; when < 250ms; when += 23ms) {
      if (!chosen())
        continue;
      BOOST_TEST_CONTEXT(changes.back() << " after " << when.count() << " ms") {
        const auto options = long_run(changes);
        simulation run{options};
        run.at(when, [&run] { run.stop(run.coordinator_node(), "SIGTERM"); });
        const auto result = run.run().summary;
        BOOST_TEST(result.interrupted);
        BOOST_TEST(result.failure.find("has the state") != std::string::npos, result.failure);
        BOOST_TEST(options.files->directories(checkpoint_folder("out")).size() == 1U);
      }
    }
}

BOOST_AUTO_TEST_CASE(a_run_that_ends_early_writes_its_state) {
  for (auto changes : averages_now_and_then)
    BOOST_TEST_CONTEXT(changes.back()) {
      changes.emplace_back("early_stopping={patience: 2 min_delta: 100}");
      const auto options = long_run(changes);
      const auto result = simulate(options).summary;
      BOOST_TEST(result.failure == "");
      BOOST_TEST(!result.ended_early.empty());
      const auto names = options.files->directories(checkpoint_folder("out"));
      BOOST_TEST_REQUIRE(!names.empty());
      // The written weights equal those of the last checkpoint.
      const auto context = make_job_context(options.job, shape_of(*options.data.train));
      const auto file = options.files->contents("out/weights.safetensors");
      const auto written = fit_checkpoint(
        read_checkpoint(*options.files, checkpoint_folder("out") / names.back()), *context);
      const auto weights = read_model(as_byte_span(file), context->parameters(), "w").weights;
      BOOST_TEST(sha256_hex(weights) == result.weights_sha256);
      BOOST_TEST(sha256_hex(written.slots[0].as_floats()) == result.weights_sha256);
    }
}

BOOST_AUTO_TEST_CASE(all_ways_give_the_same_bits) {
  for (const auto* const rule : {"{kind: SGD}", "{kind: ADAM}"}) {
    const auto job = local(3, {std::string{"optimizer="} + rule, "learning_rate.base=0.02"});
    const auto expected = train(way::simulated, job, workers, 0);
    BOOST_TEST(expected.failure == "");
    // Each worker has its own replica of the weights. A gradient counts once for each replica.
    BOOST_TEST(expected.applied == 20 * workers * workers);
    BOOST_TEST(expected.split == 0U);
    BOOST_TEST(expected.test_loss < 2.3);
    for (const auto how : {way::here, way::processes})
      BOOST_TEST(train(how, job, workers, 0).weights_sha256 == expected.weights_sha256);
  }
}

// On one host, other workers read a replica in shared memory, and release it late. With short
// steps, the other workers then use many versions of the replica at the same time.
BOOST_AUTO_TEST_CASE(other_workers_hold_many_versions) {
  const auto job =
    example_job("digits_mlp",
                {"data.digits={train: 640 test: 20}", "data.batch=4", "epochs=4",
                 "protocol=LOCAL_SGD", "local_sgd.every=1", "optimizer={kind: SGD}"});
  const auto expected = train(way::simulated, job, 3, 0);
  BOOST_TEST(expected.failure == "");
  const auto found = train_in_processes(job, 3, 0);
  BOOST_TEST(found.failure == "");
  BOOST_TEST(found.weights_sha256 == expected.weights_sha256);
}

BOOST_AUTO_TEST_CASE(fewer_averages_send_fewer_pieces) {
  const auto each = pieces(local(1));
  BOOST_TEST(each > 0U);
  // The last of 5 steps of an epoch is followed by an average, even with `every: 100`. So there are
  // four averages, after steps 5, 10, 15 and 20.
  BOOST_TEST(pieces(local(5)) * 5 == each);
  BOOST_TEST(pieces(local(100)) == pieces(local(5)));
}

// With an outer optimizer, no average is needed at the end of an epoch, because the outer weights
// are evaluated. Only the run ends with an average.
BOOST_AUTO_TEST_CASE(epochs_end_without_an_average_where_there_is_an_outer_optimizer) {
  const std::vector<std::string> outer{"local_sgd.outer={kind: SGD rate: 1}"};
  const auto each = pieces(local(1, outer));
  BOOST_TEST(each == pieces(local(1)));
  BOOST_TEST(pieces(local(5, outer)) * 5 == each);
  BOOST_TEST(pieces(local(8, outer)) * 20 == 3 * each); // after 8, 16 and 20 steps
  BOOST_TEST(pieces(local(100, outer)) * 20 == each);
  // With a single epoch, replicas without an outer optimizer are also averaged only once.
  auto one_epoch = outer;
  one_epoch.emplace_back("epochs=1");
  check_near(weights_of(local(100, one_epoch)), weights_of(local(100, {"epochs=1"})));
}

// A request of the coordinator for weights is lost. It asks again and gets the same weights.
BOOST_AUTO_TEST_CASE(lost_requests_for_weights) {
  const auto job = local(3, {"runtime.request_timeout_ms=20"});
  const auto expected = simulate(simulated(job, workers, 0)).summary.weights_sha256;
  simulation run{simulated(job, workers, 0)};
  watcher seen;
  seen.lose_pulls = 2;
  run.network().judge_with(
    [&](sim_node, sim_node, const caf::message& content) { return seen(content); });
  const auto result = run.run().summary;
  BOOST_TEST(seen.pulls > seen.lose_pulls);
  BOOST_TEST(result.failure == "");
  BOOST_TEST(result.weights_sha256 == expected);
}

// An outer step of rate 1 ends at the average of the replicas. It is computed as the last average
// plus a difference, so it differs by rounding (1e-6).
BOOST_AUTO_TEST_CASE(an_outer_step_of_rate_1_is_an_average) {
  const std::vector<std::string> changes{
    "local_sgd.outer={kind: SGD rate: 1}",
    "model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { dense { units: 10 } } "
    "loss: SOFTMAX_CROSS_ENTROPY }"};
  check_near(weights_of(local(5, changes)), weights_of(local(5, {changes[1]})));
  BOOST_TEST(weights_of(local(5, {"local_sgd.outer={kind: SGD rate: 0.5}", changes[1]}))
             != weights_of(local(5, changes)));
}

// The mean of the replicas is w - rate * (mean of g). An outer step of rate 2 goes twice as far
// from w, to w - 2 rate * (mean of g).
BOOST_AUTO_TEST_CASE(the_outer_rate_multiplies_that_of_sgd) {
  check_near(
    weights_of(local(1, {"local_sgd.outer={kind: SGD rate: 2}", "learning_rate.base=0.05"})),
    weights_of(twenty_steps(proto::RING)));
}

// With an average after each step, this run is a ring that updates its weights with the outer
// optimizer. Differences in rounding accumulate in the momentum.
BOOST_AUTO_TEST_CASE(the_outer_optimizer_of_single_steps) {
  for (const std::string kind : {"MOMENTUM", "NESTEROV"})
    check_near(
      weights_of(local(1, {"local_sgd.outer={rate: 1 momentum: 0.9 kind: " + kind + "}"})),
      weights_of(twenty_steps(proto::RING, {"optimizer={momentum: 0.9 kind: " + kind + "}"})),
      4e-6);
}

// The outer optimizer also makes its steps if there is only one worker.
BOOST_AUTO_TEST_CASE(one_worker_with_an_outer_optimizer) {
  const auto hash = [](const std::vector<std::string>& changes) {
    const auto result = simulate(simulated(local(4, changes), 1, 0)).summary;
    BOOST_TEST(result.failure == "");
    return result.weights_sha256;
  };
  BOOST_TEST(hash({"local_sgd.outer={}"}) != hash({}));
  BOOST_TEST(hash({"local_sgd.outer={}"}) != hash({"local_sgd.outer={momentum: 0.9}"}));
}

// A run continues from a checkpoint: each worker with the state of its own optimizer, all workers
// with the same outer state.
BOOST_AUTO_TEST_CASE(a_run_goes_on_from_an_average) {
  some_cases chosen;
  for (const auto* rule : {"{kind: SGD}", "{kind: NESTEROV momentum: 0.9}", "{kind: ADAM}"})
    for (const auto* outer : {"", "{kind: SGD rate: 0.7}", "{}"})
      for (const std::uint32_t every : {1, 4}) {
        std::vector<std::string> changes{std::string{"optimizer="} + rule};
        if (*outer != '\0')
          changes.push_back(std::string{"local_sgd.outer="} + outer);
        const auto job = kept(every, changes);
        kept_run run{job, workers};
        for (std::uint64_t step = every; step <= 20; step += every == 1 ? 3 : every) {
          if (!chosen())
            continue;
          BOOST_TEST_CONTEXT(rule << ", outer " << outer << ", every " << every << ", step "
                                  << step) {
            const auto resumed = run.resumed(step, job, workers);
            BOOST_TEST(resumed.failure == "");
            BOOST_TEST(resumed.weights_sha256 == run.whole.weights_sha256);
            BOOST_TEST(!run.told("one copy"));
          }
        }
      }
}

// The number of workers or the protocol changes. The outer momentum still fits, because all workers
// share it. The checkpoint also contains one copy of the optimizer's state that does not belong to
// a worker. All workers begin with this copy.
BOOST_AUTO_TEST_CASE(a_run_goes_on_with_other_workers_or_another_protocol) {
  const auto job = kept(4, {"optimizer={kind: ADAM}", "local_sgd.outer={}"});
  kept_run run{job, workers};
  for (const std::size_t crew : {1, 2, 5})
    BOOST_TEST_CONTEXT(crew << " workers") {
      const auto resumed = run.resumed(8, job, crew);
      BOOST_TEST(resumed.failure == "");
      BOOST_TEST(resumed.test_loss < 2.3);
      BOOST_TEST(run.told("all workers begin with the same state") == (crew > 1));
    }
  const auto ring = twenty_steps(proto::RING, {"optimizer={kind: ADAM}"});
  BOOST_TEST(run.resumed(8, ring, 2).failure == "");
  BOOST_TEST(!run.told("one copy"));
  // If the checkpoint has no outer momentum, the momentum starts at 0.
  kept_run plain{kept(4, {"optimizer={kind: ADAM}"}), workers};
  BOOST_TEST(plain.resumed(8, job, workers).failure == "");
}

BOOST_AUTO_TEST_SUITE_END()
