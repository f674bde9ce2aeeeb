// LOCAL_SGD with `behind: CONTRIBUTE`: if an average begins, slow workers contribute the steps that
// they have made. The average does not wait for their other steps.

#include "kernels/data/arrays.hpp"
#include "tests/actors/cluster/local_sgd_runs.hpp"
#include "tests/actors/cluster/resumed_runs.hpp"
#include "tests/support/effort.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <sstream>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(local_sgd_contribute)

namespace {

constexpr std::uint64_t samples = 4 * 1280;

proto::Job contributing(const std::vector<std::string>& more = {}) {
  auto changes = more;
  changes.insert(changes.begin(),
                 {"local_sgd.behind=CONTRIBUTE", "data.digits={train: 1280 test: 100}"});
  return local(8, changes);
}

/// A simulated cluster in which a gradient takes 5 ms on worker 0, and 1 ms on the others.
simulation_options with_a_slow_worker(const proto::Job& job, std::size_t crew = workers,
                                      std::uint64_t seed = 1) {
  auto result = simulated(job, crew, 0, seed);
  result.gradient_done = [](std::size_t worker, std::chrono::nanoseconds now) {
    return now + (worker == 0 ? 5ms : 1ms);
  };
  return result;
}

/// Gives workers different and changing speeds, and slows the links down.
void disturb(simulation_options& options, std::uint64_t seed) {
  options.links.latency = 100us * (seed % 7);
  options.links.jitter = 700us * (seed % 3);
  options.gradient_done = [seed](std::size_t worker, std::chrono::nanoseconds now) {
    const auto noise = (static_cast<std::uint64_t>(now.count()) / 1000 + worker * 7919) * seed;
    return now + 100us * (1 + noise % 97 + (worker == seed % 3 ? 300 : 0));
  };
}

void check_balanced(const run_summary& x, std::size_t crew) {
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples == samples);
  // Each worker has its own replica of the weights. A gradient counts once for each replica.
  BOOST_TEST(x.applied == samples / 16 * crew);
  BOOST_TEST(x.split == 0U);
  BOOST_TEST(x.lost == 0U);
  BOOST_TEST(x.rejected_stale == 0U);
}

} // namespace

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
  // Between two averages, 4 workers compute about 26 gradients in 10 ms. Without CONTRIBUTE, they
  // compute 4 x 8 gradients in 40 ms.
  BOOST_TEST(ratio > 2);
  BOOST_TEST(fast.summary.test_loss < 2.0);
}

// Every worker takes part in every average, and makes at most `every` steps in between.
BOOST_AUTO_TEST_CASE(all_workers_contribute) {
  simulation run{with_a_slow_worker(contributing())};
  // For each average: the nodes that sent pieces of it, and how many.
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
  // There are 320 gradients. An average begins after the fastest worker has made 8. Two of the
  // others also have about 8 by then, and the slow worker has at least one.
  BOOST_TEST(averages.size() >= 320 / (4 * 8));
  BOOST_TEST(averages.size() <= 320 / (3 * 7) + 4);
}

// Workers have random speeds, and links have random delays. All samples are trained, and all
// workers end.
BOOST_AUTO_TEST_CASE(any_timing) {
  for (std::uint64_t seed = 1; seed <= tries(40); ++seed) {
    const std::size_t crew = seed % 5 + 1;
    auto job = contributing({"data.digits={train: 1280 test: 20}"});
    if (seed % 3 == 0)
      apply_override(job, "local_sgd.outer={kind: NESTEROV rate: 0.7 momentum: 0.5}");
    if (seed % 4 == 0)
      apply_override(job, "local_sgd.every=" + std::to_string(seed));
    auto options = simulated(job, crew, 0, seed);
    disturb(options, seed);
    BOOST_TEST_CONTEXT("seed " << seed << ", " << crew << " workers") {
      const auto result = simulate(options);
      check_balanced(result.summary, crew);
      BOOST_TEST(result.summary.test_loss < 2.3);
      for (auto& node : result.nodes)
        BOOST_TEST(node.has_value());
    }
  }
}

// A run ends early, while its workers have made different numbers of steps since the last average.
BOOST_AUTO_TEST_CASE(a_run_that_ends_early) {
  for (std::uint64_t seed = 1; seed <= tries(30); ++seed)
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

// A run whose weights count how often each record was trained. The gradient of a record changes
// only one weight, which belongs to this record, by an almost constant amount.
struct counting_run {
  static constexpr std::size_t count = 60;
  static constexpr std::uint32_t batch = 2;
  static constexpr std::size_t crew = 3;
  static constexpr double target = 1e5;
  static constexpr double rate = 1e-5;

  explicit counting_run(const std::vector<std::string>& more) {
    std::vector<std::string> changes{"model.layer[0].dense.bias=false",
                                     "data.batch=" + std::to_string(batch),
                                     "epochs=4",
                                     "learning_rate={base: 1e-5}",
                                     "protocol=LOCAL_SGD",
                                     "output=out"};
    changes.insert(changes.end(), more.begin(), more.end());
    job = example_job("advertising", changes);
    std::vector<float> features(count * count, 0);
    for (std::size_t i = 0; i < count; ++i)
      features[i * count + i] = 1;
    const std::vector<double> targets(count, target);
    options.job = job;
    options.workers = crew;
    options.ps = 0;
    options.data.train = options.data.test = std::make_shared<array_dataset>(
      shape{count}, std::move(features), stored_labels::as_targets(targets, 1, "targets"));
    const auto context = make_job_context(job, shape_of(*options.data.train));
    initial.resize(count);
    context->initialize({0, count}, initial);
  }

  /// How often each record was trained, computed from these weights.
  std::vector<long> times(std::span<const float> weights) const {
    std::vector<long> result;
    for (std::size_t i = 0; i < count; ++i) {
      const auto x = (weights[i] - initial[i]) * batch * crew / (2 * rate * target);
      BOOST_TEST(std::abs(x - std::round(x)) < 0.01, "record " << i << ": " << x);
      result.push_back(std::lround(x));
    }
    return result;
  }

  proto::Job job;
  simulation_options options;
  std::vector<float> initial;
};

// The weights of a checkpoint show which records were trained. These are exactly the records that
// the checkpoint lists as trained. A run that continues from it trains each of the remaining
// records once.
BOOST_AUTO_TEST_CASE(no_record_is_lost_or_counted_twice) {
  std::size_t different = 0;
  for (std::uint64_t seed = 1; seed <= tries(20); ++seed) {
    std::vector<std::string> changes{"local_sgd={every: 2 behind: CONTRIBUTE}",
                                     "checkpoint={every_steps: 2 keep: 100}"};
    if (seed % 2 == 0)
      changes.emplace_back("local_sgd.outer={kind: SGD rate: 1}");
    counting_run how{changes};
    how.options.seed = seed;
    disturb(how.options, seed);
    site first{how.options};
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_TEST_REQUIRE(simulate(first.options).summary.failure == "");
      const auto names = first.checkpoints();
      BOOST_TEST(names.size() >= 10U);
      for (auto& name : names)
        BOOST_TEST_CONTEXT(name) {
          const auto from = first.load(checkpoint_step(name), how.job);
          const auto& x = from->manifest;
          const auto times = how.times(from->slots[0].as_floats());
          const long epoch = x.cut.epoch;
          BOOST_TEST(std::ranges::count(times, epoch) == static_cast<long>(x.cut.samples()));
          BOOST_TEST(std::ranges::count(times, epoch + 1)
                     == static_cast<long>(how.count - x.cut.samples()));
          different +=
            std::ranges::adjacent_find(x.marks, std::not_equal_to{}, &checkpoint_mark::sequence)
              != x.marks.end()
            ? 1
            : 0;
          auto options = going_on(first, how.job, how.crew, 0, x.step);
          options.files = std::make_shared<memory_storage>();
          const auto end = simulate(options).summary;
          BOOST_TEST(end.failure == "");
          BOOST_TEST(end.samples == how.count * (3 - x.cut.epoch) + x.cut.samples());
          const auto file = options.files->contents("out/weights.safetensors");
          const auto context = make_job_context(how.job, shape_of(*options.data.train));
          const auto weights = read_model(as_byte_span(file), context->parameters(), "w").weights;
          BOOST_TEST((how.times(weights) == std::vector<long>(how.count, 4)));
        }
    }
  }
  BOOST_TEST(different > 0U); // workers had trained different numbers of batches
}

// Each worker has its own number of updates, which Adam needs for its bias correction. All
// gradients are almost equal here. So an update of Adam moves each weight by the learning rate,
// unless the number of updates is wrong.
BOOST_AUTO_TEST_CASE(each_worker_has_its_own_number_of_updates) {
  std::size_t different = 0;
  for (std::uint64_t seed = 1; seed <= tries(6); ++seed) {
    const auto* const kind = seed % 2 == 0 ? "ADAM" : "ADAMW";
    constexpr double step = 0.01;
    counting_run how{{"local_sgd={every: 2 behind: CONTRIBUTE}",
                      "checkpoint={every_steps: 2 keep: 100}", "learning_rate={base: 0.01}",
                      std::string{"optimizer={kind: "} + kind + " weight_decay: 0}"}};
    const std::vector<double> targets(how.count, how.target);
    how.options.data.train = how.options.data.test = std::make_shared<array_dataset>(
      shape{how.count}, std::vector<float>(how.count * how.count, 1),
      stored_labels::as_targets(targets, 1, "targets"));
    how.options.seed = seed;
    disturb(how.options, seed);
    const auto check_moved = [&](std::span<const float> now, std::span<const float> before,
                                 std::uint64_t samples, std::size_t crew) {
      const auto way = step * static_cast<double>(samples) / how.batch / static_cast<double>(crew);
      std::vector<float> expected(before.begin(), before.end());
      for (auto& y : expected)
        y += static_cast<float>(way);
      check_near({now.begin(), now.end()}, expected, 1e-3 * way + 1e-6);
    };
    site first{how.options};
    BOOST_TEST_CONTEXT(kind << ", seed " << seed) {
      BOOST_TEST_REQUIRE(simulate(first.options).summary.failure == "");
      for (auto& name : first.checkpoints()) {
        const auto from = first.load(checkpoint_step(name), how.job);
        const auto& x = from->manifest;
        const auto before = from->slots[0].as_floats();
        check_moved(before, how.initial, x.samples, how.crew);
        BOOST_TEST_REQUIRE(x.marks.size() == how.crew);
        // A worker without updates has an optimizer state of zeros. The checks below do not hold
        // for it.
        if (std::ranges::any_of(x.marks, [](auto& y) { return y.updates == 0U; }))
          continue;
        for (auto& y : x.marks) {
          BOOST_TEST(y.updates.value() == y.sequence);
          different += y.updates != x.step ? 1 : 0;
        }
        auto ring = how.job;
        ring.set_protocol(proto::RING);
        ring.clear_local_sgd();
        const std::pair<std::size_t, proto::Job> others[] = {
          {3, how.job}, {2, how.job}, {5, how.job}, {1, ring}};
        for (const auto& [crew, job] : others) {
          auto options = going_on(first, job, crew, 0, x.step);
          options.files = std::make_shared<memory_storage>();
          BOOST_TEST_CONTEXT(name << ", " << crew << " workers") {
            const auto end = simulate(options).summary;
            BOOST_TEST(end.failure == "");
            const auto file = options.files->contents("out/weights.safetensors");
            const auto context = make_job_context(job, shape_of(*options.data.train));
            const auto after = read_model(as_byte_span(file), context->parameters(), "w").weights;
            check_moved(after, before, end.samples, crew);
          }
        }
      }
    }
  }
  BOOST_TEST(different > 0U);
}

// In a run with CONTRIBUTE, workers have made different numbers of updates. Another run continues
// it without CONTRIBUTE and writes checkpoints. Runs that continue from these get the same weights,
// bit for bit.
BOOST_AUTO_TEST_CASE(different_numbers_of_updates_go_on) {
  for (const auto* kind : {"ADAM", "ADAMW", "LAMB"}) {
    const std::vector<std::string> changes{"protocol=LOCAL_SGD", "data.batch=5",
                                           "local_sgd={every: 2 behind: CONTRIBUTE}",
                                           std::string{"optimizer={kind: "} + kind + "}"};
    auto job = forty_steps(changes, 2);
    auto options = simulated(job, 3, 0);
    disturb(options, 5);
    site first{options};
    BOOST_TEST_REQUIRE(simulate(first.options).summary.failure == "");
    const auto names = first.checkpoints();
    const auto begin = checkpoint_step(names.at(names.size() / 2));
    const auto marks = first.load(begin, job)->manifest.marks;
    BOOST_TEST(std::ranges::any_of(marks, [&](auto& x) { return x.updates.value() < begin; }));
    apply_override(job, "local_sgd.behind=WAIT");
    site second{going_on(first, job, 3, 0, begin)};
    const auto whole = simulate(second.options).summary;
    BOOST_TEST_REQUIRE(whole.failure == "");
    BOOST_TEST(second.checkpoints().size() > 5U);
    for (auto& name : second.checkpoints())
      BOOST_TEST_CONTEXT(kind << ", " << name) {
        const auto how = going_on(second, job, 3, 0, checkpoint_step(name));
        BOOST_TEST(simulate(how).summary.weights_sha256 == whole.weights_sha256);
      }
  }
}

// An evaluation is due after 16 steps of the fastest worker.
BOOST_AUTO_TEST_CASE(evaluations_within_an_epoch) {
  auto options = with_a_slow_worker(contributing({"evaluate={every_steps: 16}"}));
  options.files = std::make_shared<memory_storage>();
  check_balanced(simulate(options).summary, workers);
  std::istringstream lines{options.files->contents("out/metrics.jsonl")};
  std::uint64_t newest = 0;
  std::size_t evaluations = 0;
  for (std::string text; std::getline(lines, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line.at("event") != "evaluation")
      continue;
    const std::uint64_t step = line.at("step");
    BOOST_TEST(step > newest);
    BOOST_TEST(step % 16 == 0U);
    BOOST_TEST(line.at("test_loss") < 2.4);
    newest = step;
    ++evaluations;
  }
  // There are 320 gradients. Three workers have the same speed. The fourth makes a fifth as many
  // gradients as each of them.
  BOOST_TEST(evaluations >= 320U / 4 / 16);
  BOOST_TEST(newest <= 320U / 3);
}

// A run continues from the last checkpoint of a run that had ended, and makes no step. The average
// at its end changes nothing.
BOOST_AUTO_TEST_CASE(a_run_that_had_ended_keeps_its_weights) {
  for (const auto* outer : {"{}", "{kind: MOMENTUM momentum: 0.9}", ""})
    for (const std::size_t crew : {1, 3, 6}) {
      std::vector<std::string> changes{"local_sgd.behind=CONTRIBUTE"};
      if (*outer != '\0')
        changes.push_back(std::string{"local_sgd.outer="} + outer);
      const auto job = kept(4, changes);
      kept_run run{job, crew};
      const auto names = run.options.files->directories(checkpoint_folder("out"));
      BOOST_TEST_CONTEXT("outer " << outer << ", " << crew << " workers") {
        BOOST_TEST_REQUIRE(!names.empty());
        const auto resumed = run.resumed(checkpoint_step(names.back()), job, crew);
        BOOST_TEST(resumed.failure == "");
        BOOST_TEST(resumed.samples == 0U);
        BOOST_TEST(resumed.weights_sha256 == run.whole.weights_sha256);
        BOOST_TEST(!run.told("momentum of their own"));
      }
    }
}

BOOST_AUTO_TEST_CASE(the_ledger_balances_in_all_ways) {
  for (const auto how : all_ways)
    check_balanced(train(how, contributing(), workers, 0), workers);
}

// The learning rate depends on the epoch, which counts the samples of all workers. From the third
// epoch on, the learning rate is almost 0, so the weights do not change.
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

// A worker crashes, or stops politely. The run ends, because it needs the replicas of all workers.
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
