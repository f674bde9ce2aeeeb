// LOCAL_SGD that averages one fragment of the weights at a time, while training continues
// (Streaming DiLoCo).

#include "actors/protocols/local_sgd/fragments.hpp"
#include "tests/actors/cluster/local_sgd_runs.hpp"
#include "tests/support/effort.hpp"

#include <cmath>
#include <map>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(local_sgd_fragments)

namespace {

std::string in_parts(std::uint32_t fragments) {
  return "local_sgd.fragments=" + std::to_string(fragments);
}

/// A job of 40 steps that averages the weights in `fragments` fragments.
proto::Job forty_steps(std::uint32_t every, std::uint32_t fragments,
                       const std::vector<std::string>& more = {}) {
  auto changes = more;
  changes.insert(changes.end(), {in_parts(fragments), "epochs=8"});
  return local(every, changes);
}

std::shared_ptr<const job_context> context_of(const proto::Job& job) {
  return make_job_context(job, shape_of(*build_data(job).train));
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

/// Measures the traffic of a run in which each gradient takes a millisecond.
struct timed_traffic {
  timed_traffic(const proto::Job& job, double bytes_per_second) {
    auto options = simulated(job, workers, 0);
    options.links.bytes_per_second = bytes_per_second;
    options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1ms; };
    simulation run{options};
    run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
      if (content.match_elements<proto::Frame, caf::message>()) {
        const auto& inner = content.get_as<caf::message>(1);
        if (inner.match_elements<proto::Segment, payload>()) {
          const auto size = inner.get_as<payload>(1).size();
          by_average[inner.get_as<proto::Segment>(0).step()] += size;
        }
      }
      return verdict::deliver;
    });
    const auto result = run.run();
    BOOST_TEST(result.summary.failure == "");
    time = result.virtual_time;
  }

  /// Bytes sent for each average, by the number of the average.
  std::map<std::uint64_t, std::uint64_t> by_average;
  std::chrono::nanoseconds time{0};
};

} // namespace

BOOST_AUTO_TEST_CASE(fragments_cover_the_weights_and_take_turns) {
  for (const std::uint32_t count : {1, 2, 3, 4, 8})
    for (const std::uint32_t every : {8, 13, 50}) {
      const auto job = context_of(local(every, {in_parts(count), "runtime.bucket_bytes=4"}));
      const weight_fragments x{*job};
      if (count == 1)
        BOOST_TEST((x.pieces() == job->buckets()));
      std::size_t covered = 0;
      std::vector<std::uint64_t> turns;
      for (std::uint64_t step = 1; step <= every; ++step) {
        const auto now = x.due(step);
        BOOST_TEST((x.due(step + every) == now));
        if (!now)
          continue;
        turns.push_back(step);
        std::size_t elements = 0;
        for (auto i = now->begin; i < now->end; ++i)
          elements += x.pieces()[i].size();
        covered += elements;
        BOOST_TEST(elements <= job->parameters().size() / count + 1);
      }
      BOOST_TEST(covered == job->parameters().size());
      BOOST_TEST_REQUIRE(turns.size() == count);
      BOOST_TEST(turns.back() == every);
      for (std::size_t i = 1; i < count; ++i) {
        BOOST_TEST(turns[i] - turns[i - 1] >= every / count);
        BOOST_TEST(turns[i] - turns[i - 1] <= every / count + 1);
      }
    }
}

// A capture (a copy of the weights for a checkpoint or an evaluation) needs equal weights on all
// workers. So all fragments are averaged at its step.
BOOST_AUTO_TEST_CASE(everything_is_averaged_for_a_capture) {
  const auto job = context_of(local(4, {in_parts(2), "checkpoint={every_steps: 12}"}));
  const weight_fragments x{*job};
  BOOST_TEST((x.due(12) == x.all()));
  BOOST_TEST((x.due(24) == x.all()));
  for (const std::uint64_t step : {2, 4, 6, 8, 10, 14})
    BOOST_TEST((x.due(step) && x.due(step) != x.all()));
  BOOST_TEST(!x.due(1));
}

BOOST_AUTO_TEST_CASE(one_fragment_changes_nothing) {
  for (const auto* outer : {"{kind: SGD rate: 0.7}", "{}"}) {
    const auto change = std::string{"local_sgd.outer="} + outer;
    BOOST_TEST((weights_of(local(4, {change, in_parts(1)})) == weights_of(local(4, {change}))));
  }
}

// The weights do not depend on when the pieces of an average arrive.
BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_timing) {
  some_cases chosen;
  for (const std::size_t crew : {1, 2, 3, 4, 5})
    for (const std::uint32_t fragments : {2, 4})
      for (const auto* outer : {"", "local_sgd.outer={}"}) {
        if (!chosen())
          continue;
        BOOST_TEST_CONTEXT(crew << " workers, " << fragments << " fragments, " << outer) {
          auto job = forty_steps(8, fragments);
          if (*outer != '\0')
            apply_override(job, outer);
          std::string expected;
          for (const std::uint64_t seed : {1, 2, 3}) {
            auto options = simulated(job, crew, 0, seed);
            options.links.jitter = 300us * seed;
            options.links.bytes_per_second = 1e9 / std::pow(30.0, static_cast<double>(seed - 1));
            options.gradient_done = [seed](std::size_t worker, std::chrono::nanoseconds now) {
              return now + 1ms * ((worker + static_cast<std::size_t>(now / 1ms)) % seed + 1);
            };
            const auto x = simulate(options).summary;
            BOOST_TEST(x.failure == "");
            BOOST_TEST(x.samples == 8 * 320U);
            // Each worker has its own replica of the weights. A gradient counts once for each
            // replica.
            const auto steps = (320 + 16 * crew - 1) / (16 * crew);
            BOOST_TEST(x.applied == 8 * steps * crew * crew);
            BOOST_TEST(x.split == 0U);
            if (expected.empty())
              expected = x.weights_sha256;
            BOOST_TEST(x.weights_sha256 == expected);
          }
        }
      }
}

BOOST_AUTO_TEST_CASE(all_ways_give_the_same_bits) {
  const auto job =
    forty_steps(8, 4, {"local_sgd.outer={}", "optimizer={kind: ADAM}", "learning_rate.base=0.02"});
  const auto expected = train(way::simulated, job, workers, 0);
  BOOST_TEST(expected.failure == "");
  BOOST_TEST(expected.test_loss < 2.3);
  for (const auto how : {way::here, way::processes})
    BOOST_TEST(train(how, job, workers, 0).weights_sha256 == expected.weights_sha256);
}

// A single worker without an outer optimizer has nothing to average.
BOOST_AUTO_TEST_CASE(one_worker_is_a_serial_loop) {
  BOOST_TEST((weights_of(forty_steps(8, 4), 1) == weights_of(forty_steps(8, 1), 1)));
}

// Workers continue to train while a fragment is averaged. These steps are neither lost nor counted
// twice. If one of 8 fragments were wrong, the distance that the weights move would change by an
// eighth. The learning rate is small, so that gradients differ little.
BOOST_AUTO_TEST_CASE(each_step_enters_one_average) {
  const std::vector<std::string> slow{"learning_rate={base: 0.0005}"};
  const auto begin = weights_of(local(8, {"learning_rate={base: 1e-30}"}));
  const auto whole = weights_of(forty_steps(8, 1, slow));
  const auto way = distance(whole, begin);
  BOOST_TEST(way > 0);
  for (const std::uint32_t fragments : {2, 4, 8}) {
    BOOST_TEST(distance(weights_of(forty_steps(8, fragments, slow)), whole) < 0.03 * way);
    auto outer = slow;
    outer.emplace_back("local_sgd.outer={kind: SGD rate: 1}");
    BOOST_TEST(distance(weights_of(forty_steps(8, fragments, outer)), whole) < 0.03 * way);
  }
}

BOOST_AUTO_TEST_CASE(statistics_stay_positive) {
  const auto result =
    simulate(
      simulated(
        forty_steps(8, 4,
                    {"model={ layer { dense { units: 8 } } layer { batch_norm {} } layer { dense { "
                     "units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }",
                     "local_sgd.outer={}"}),
        workers, 0))
      .summary;
  BOOST_TEST(result.failure == "");
  BOOST_TEST(std::isfinite(result.test_loss));
  BOOST_TEST(result.test_loss < 2.3);
}

// With 4 fragments, each average sends a quarter of the weights, at its own step. Only the last
// average, at the end of the run, sends all weights.
BOOST_AUTO_TEST_CASE(traffic_is_spread_over_steps) {
  const auto outer = std::vector<std::string>{"local_sgd.outer={}"};
  const timed_traffic whole{forty_steps(8, 1, outer), 1e9};
  const timed_traffic parts{forty_steps(8, 4, outer), 1e9};
  BOOST_TEST_REQUIRE(whole.by_average.size() == 40 / 8U);
  BOOST_TEST_REQUIRE(parts.by_average.size() == 40 / 2U + 1);
  const auto all = static_cast<double>(whole.by_average.at(0));
  for (std::uint64_t i = 0; i < 20; ++i)
    BOOST_TEST(static_cast<double>(parts.by_average.at(i)) < 1.02 * all / 4);
  BOOST_TEST(static_cast<double>(parts.by_average.at(20)) < 1.02 * all);
}

// On these slow links, averaging all weights takes longer than a step. Averaging one fragment ends
// before the next fragment begins.
BOOST_AUTO_TEST_CASE(training_goes_on_while_a_fragment_is_under_way) {
  const auto outer = std::vector<std::string>{"local_sgd.outer={}"};
  const timed_traffic whole{forty_steps(8, 1, outer), 2e7};
  const timed_traffic parts{forty_steps(8, 4, outer), 2e7};
  BOOST_TEST_MESSAGE(whole.time.count() << " ns, " << parts.time.count() << " ns");
  BOOST_TEST(parts.time < whole.time);
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_every_checkpoint) {
  some_cases chosen;
  for (const auto* rule : {"{kind: NESTEROV momentum: 0.9}", "{kind: ADAM}"})
    for (const auto* outer : {"", "{}"})
      for (const std::uint32_t fragments : {2, 4}) {
        std::vector<std::string> changes{std::string{"optimizer="} + rule, "epochs=8",
                                         in_parts(fragments),
                                         "learning_rate={base: 0.02 cosine {}}",
                                         // 315 samples are not a whole number of batches of 16.
                                         "data.digits={train: 315 test: 20}"};
        if (*outer != '\0')
          changes.push_back(std::string{"local_sgd.outer="} + outer);
        for (const std::uint32_t steps : {4, 8}) {
          auto all = changes;
          all.push_back("checkpoint={every_steps: " + std::to_string(steps) + " keep: 40}");
          const auto job = local(4, all);
          kept_run run{job, workers};
          for (std::uint64_t step = steps; step <= 40; step += steps) {
            if (!chosen())
              continue;
            BOOST_TEST_CONTEXT(rule << ", outer " << outer << ", " << fragments
                                    << " fragments, step " << step << " of each " << steps) {
              const auto resumed = run.resumed(step, job, workers);
              BOOST_TEST(resumed.failure == "");
              BOOST_TEST(resumed.weights_sha256 == run.whole.weights_sha256);
            }
          }
        }
      }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_other_fragments_and_workers) {
  const std::vector<std::string> changes{"optimizer={kind: ADAM}", "local_sgd.outer={}"};
  kept_run run{kept(4, changes), workers};
  auto job = run.options.job;
  job.mutable_local_sgd()->set_fragments(4);
  for (const std::size_t crew : {1, 2, 4, 5}) {
    const auto resumed = run.resumed(8, job, crew);
    BOOST_TEST(resumed.failure == "");
    BOOST_TEST(resumed.test_loss < 2.3);
  }
}

// A job has more fragments than buckets (the pieces in which a ring sends), or more fragments than
// parameters. So some fragments are tiny or empty.
BOOST_AUTO_TEST_CASE(fragments_may_be_small) {
  const std::vector<std::string> tiny{"model={ layer { dense { units: 10 bias: false } } loss: "
                                      "SOFTMAX_CROSS_ENTROPY }"};
  auto job = forty_steps(20, 16, tiny);
  BOOST_TEST_REQUIRE(context_of(job)->buckets().size() < 16);
  BOOST_TEST(simulate(simulated(job, 3, 0)).summary.failure == "");
}

BOOST_AUTO_TEST_CASE(evaluations_within_an_epoch) {
  const auto job = forty_steps(4, 2, {"evaluate={every_steps: 8}"});
  simulation run{simulated(job, workers, 0)};
  const auto result = run.run().summary;
  BOOST_TEST(result.failure == "");
}

// Requests of the coordinator are lost, and it repeats them.
BOOST_AUTO_TEST_CASE(lost_requests) {
  for (const auto* outer : {"", "local_sgd.outer={}"}) {
    auto job = forty_steps(8, 4, {"runtime.request_timeout_ms=20"});
    if (*outer != '\0')
      apply_override(job, outer);
    const auto expected = simulate(simulated(job, workers, 0)).summary.weights_sha256;
    simulation run{simulated(job, workers, 0)};
    int lost = 0;
    run.network().judge_with([&](sim_node, sim_node, const caf::message& content) {
      if (content.empty() || !content.match_element<proto::Frame>(0)
          || content.get_as<proto::Frame>(0).to().service() != proto::READER || lost == 2)
        return verdict::deliver;
      ++lost;
      return verdict::drop;
    });
    const auto result = run.run().summary;
    BOOST_TEST(lost == 2);
    BOOST_TEST(result.failure == "");
    BOOST_TEST(result.weights_sha256 == expected);
  }
}

// A worker stops while a fragment is averaged: the run ends. A worker only pauses: the run
// continues.
BOOST_AUTO_TEST_CASE(workers_that_stop_or_pause) {
  auto options = simulated(forty_steps(8, 4), workers, 0);
  options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1ms; };
  const auto expected = simulate(options).summary.weights_sha256;
  some_cases chosen;
  for (auto when = 5ms; when < 40ms; when += 5ms)
    for (const auto* what : {"crash", "stop", "pause"}) {
      if (!chosen())
        continue;
      BOOST_TEST_CONTEXT(what << " after " << when.count() << " ms") {
        simulation run{options};
        const auto node = run.worker_node(2);
        run.at(when, [&run, node, what = std::string{what}] {
          if (what == "crash")
            run.crash(node);
          else if (what == "stop")
            run.stop(node, "SIGTERM");
          else
            run.freeze(node);
        });
        run.at(when + 50ms, [&run, node] { run.thaw(node); });
        const auto result = run.run();
        if (std::string{what} == "pause")
          BOOST_TEST(result.summary.weights_sha256 == expected);
        else
          BOOST_TEST(result.summary.failure.find("worker/2") != std::string::npos,
                     result.summary.failure);
        for (auto& x : result.nodes)
          BOOST_TEST(x.has_value());
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
