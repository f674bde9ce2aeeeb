// Runs every protocol with every setting that changes how workers cooperate. A run must continue
// from each of its checkpoints, and survive the faults that its protocol promises to survive.

#include "actors/model/protocol_traits.hpp"
#include "tests/actors/cluster/resumed_runs.hpp"
#include "tests/support/effort.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(modes)

namespace {

/// `same`: the weights depend only on the job, bit for bit. `any`: they also depend on timing and
/// interruptions.
enum class bits { same, any };

struct mode {
  std::string name;
  std::size_t workers;
  std::size_t ps;
  bits result;
  std::vector<std::string> changes;
  /// Number of steps between two checkpoints.
  std::uint64_t checkpoint = 1;

  bool in_one_process() const { return name.starts_with("hogwild"); }

  simulation_options make(const proto::Job& job) const {
    auto result = simulated(job, workers, ps);
    result.one_node = in_one_process();
    // A single worker without servers waits for no other task, so its steps would take no simulated
    // time. They take 1 ms here, so that every checkpoint is written in time.
    if (workers == 1 && ps == 0)
      result.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1ms; };
    return result;
  }
};

const std::string normalized =
  "model={ layer { dense { units: 8 } } layer { batch_norm { sync: true } } "
  "layer { dense { units: 10 } } loss: SOFTMAX_CROSS_ENTROPY }";

/// Modes with synchronous steps, which sum the gradients of two workers.
std::vector<mode> modes_in_step() {
  std::vector<mode> result;
  const std::pair<std::string, std::vector<std::string>> settings[] = {
    {"", {}},
    {", batch_norm.sync", {normalized}},
    {", accumulate", {"accumulate=2", "data.batch=4"}},
    {", moving_average", {"moving_average={decay: 0.75}"}},
    {", clip_norm", {"optimizer.clip_norm=1"}},
    {", shard_optimizer", {"ring.shard_optimizer=true", "optimizer={kind: ADAM}"}},
    {", shard_optimizer, batch_norm.sync", {"ring.shard_optimizer=true", normalized}},
  };
  for (const auto& [name, changes] : settings)
    for (const auto& [protocol, ps] : {std::pair{"RING", 0}, {"SYNC_PS", 2}}) {
      if (ps > 0 && name.starts_with(", shard"))
        continue;
      mode x{protocol + name,
             2,
             static_cast<std::size_t>(ps),
             bits::same,
             {std::string{"protocol="} + protocol, "data.batch=8"}};
      x.changes.insert(x.changes.end(), changes.begin(), changes.end());
      result.push_back(std::move(x));
    }
  const std::pair<std::uint64_t, std::string> averages[] = {
    {1, "every: 1"},
    {2, "every: 2"},
    {2, "every: 2 outer {}"},
    {4, "every: 4 outer { kind: MOMENTUM }"},
    {4, "every: 4 fragments: 2"},
    {4, "every: 4 fragments: 4 outer {}"},
  };
  for (const auto& [every, how] : averages)
    result.push_back({"local_sgd, " + how,
                      2,
                      0,
                      bits::same,
                      {"protocol=LOCAL_SGD", "local_sgd={" + how + "}", "data.batch=8"},
                      every});
  result.push_back({"local_sgd, ADAM",
                    2,
                    0,
                    bits::same,
                    {"protocol=LOCAL_SGD", "local_sgd={every: 2 fragments: 2}", "data.batch=8",
                     "optimizer={kind: ADAM}"},
                    2});
  return result;
}

/// Modes with a single worker. The result depends only on the job, except if the worker pulls
/// weights early (`pull_ahead`), because its gradients are then stale.
std::vector<mode> modes_of_one_worker() {
  return {
    {"async_ps, 1", 1, 2, bits::same, {}},
    {"async_ps, 1, accumulate", 1, 2, bits::same, {"accumulate=2", "data.batch=8"}},
    {"async_ps, 1, buffer", 1, 2, bits::same, {"async_ps.buffer=2", "data.batch=8"}},
    {"async_ps, 1, moving_average", 1, 2, bits::same, {"moving_average={decay: 0.75}"}},
    {"async_ps, 1, pull_ahead", 1, 2, bits::any, {"pull_ahead=2"}},
    {"ssp, 1", 1, 2, bits::same, {"protocol=SSP"}},
    {"ssp, 1, pull_ahead", 1, 2, bits::any, {"protocol=SSP", "pull_ahead=2"}},
    {"hogwild, 1", 1, 2, bits::same, {"protocol=HOGWILD", "optimizer={kind: SGD}"}},
    {"local_sgd, 1, CONTRIBUTE",
     1,
     0,
     bits::same,
     {"protocol=LOCAL_SGD", "local_sgd={every: 1 behind: CONTRIBUTE}"}},
    {"local_sgd, 1, CONTRIBUTE, outer",
     1,
     0,
     bits::same,
     {"protocol=LOCAL_SGD", "local_sgd={every: 4 behind: CONTRIBUTE outer {}}"},
     4},
    {"local_sgd, 1, CONTRIBUTE, ADAM",
     1,
     0,
     bits::same,
     {"protocol=LOCAL_SGD", "local_sgd={every: 2 behind: CONTRIBUTE}", "optimizer={kind: ADAM}"},
     2},
  };
}

/// Modes whose workers do not wait for each other at every step.
std::vector<mode> modes_with_any_order() {
  return {
    {"async_ps", 3, 2, bits::any, {}},
    {"async_ps, max_staleness", 3, 2, bits::any, {"async_ps.max_staleness=1"}},
    {"async_ps, buffer", 3, 2, bits::any, {"async_ps.buffer=3", "data.batch=5"}},
    {"async_ps, pull_ahead", 3, 2, bits::any, {"pull_ahead=1"}},
    {"async_ps, accumulate", 3, 2, bits::any, {"accumulate=2", "data.batch=8"}},
    {"async_ps, moving_average", 3, 2, bits::any, {"moving_average={decay: 0.75}"}},
    {"ssp, 0", 3, 2, bits::any, {"protocol=SSP", "ssp.staleness=0"}},
    {"ssp, 2", 3, 2, bits::any, {"protocol=SSP", "ssp.staleness=2"}},
    {"ssp, pull_ahead", 3, 2, bits::any, {"protocol=SSP", "pull_ahead=2"}},
    {"ssp, accumulate", 3, 2, bits::any, {"protocol=SSP", "accumulate=2", "data.batch=8"}},
    {"sync_ps, backup, REQUEUE",
     3,
     2,
     bits::any,
     {"protocol=SYNC_PS", "sync_ps={backup_workers: 1}", "data.batch=8"}},
    {"sync_ps, backup, REJECT",
     3,
     2,
     bits::any,
     {"protocol=SYNC_PS", "sync_ps={backup_workers: 1 late: REJECT}", "data.batch=8"}},
    {"hogwild", 3, 2, bits::any, {"protocol=HOGWILD", "optimizer={kind: SGD}"}},
    {"local_sgd, CONTRIBUTE, every: 1",
     3,
     0,
     bits::any,
     {"protocol=LOCAL_SGD", "local_sgd={every: 1 behind: CONTRIBUTE}", "data.batch=5"}},
    {"local_sgd, CONTRIBUTE, every: 4",
     3,
     0,
     bits::any,
     {"protocol=LOCAL_SGD", "local_sgd={every: 4 behind: CONTRIBUTE}", "data.batch=5"},
     4},
    {"local_sgd, CONTRIBUTE, outer",
     3,
     0,
     bits::any,
     {"protocol=LOCAL_SGD", "local_sgd={every: 2 behind: CONTRIBUTE outer {}}", "data.batch=5"},
     2},
    {"local_sgd, CONTRIBUTE, ADAM",
     3,
     0,
     bits::any,
     {"protocol=LOCAL_SGD", "local_sgd={every: 2 behind: CONTRIBUTE}", "data.batch=5",
      "optimizer={kind: ADAM}"},
     2},
  };
}

std::vector<mode> all_modes() {
  auto result = modes_in_step();
  for (auto& more : {modes_of_one_worker(), modes_with_any_order()})
    result.insert(result.end(), more.begin(), more.end());
  return result;
}

std::uint64_t samples_left(const checkpoint& x) {
  const auto& cut = x.manifest.cut;
  return records * (3 - cut.epoch) + cut.samples();
}

/// Checks that all samples are trained, except those that `late: REJECT` leaves out. The ledger
/// (the account of all gradients) balances, and the model learns.
void check_complete(const run_summary& x, const mode& how, std::uint64_t samples) {
  BOOST_TEST(x.failure == "");
  BOOST_TEST(x.samples + x.dropped_samples == samples);
  BOOST_TEST((x.dropped_samples == 0 || how.name.ends_with("REJECT")));
  BOOST_TEST(x.split == 0U);
  BOOST_TEST((x.samples == 0 || x.train_loss < std::log(10.0)), x.train_loss);
}

enum class fault { twice, unanswered, unheard, pause, leave, crash, mistake };

constexpr std::pair<fault, const char*> faults[] = {
  {fault::twice, "messages arrive twice"},
  {fault::unanswered, "answers are lost"},
  {fault::unheard, "requests are lost"},
  {fault::pause, "a worker pauses"},
  {fault::leave, "a worker leaves"},
  {fault::crash, "a worker crashes"},
  {fault::mistake, "a worker is given up by mistake"},
};

/// Delivers every 19th frame of these kinds twice, or not at all.
void harm_frames(simulation& run, const std::shared_ptr<std::uint64_t>& hits, verdict what,
                 std::optional<proto::Frame::Kind> kind) {
  run.network().judge_with(
    [=, seen = std::uint64_t{0}](sim_node, sim_node, const caf::message& x) mutable {
      if (!x.match_elements<proto::Frame, caf::message>()
          || (kind && x.get_as<proto::Frame>(0).kind() != *kind) || ++seen % 19 != 0)
        return verdict::deliver;
      ++*hits;
      return what;
    });
}

std::shared_ptr<std::uint64_t> prepare(simulation& run, fault what, std::uint64_t seed) {
  auto hits = std::make_shared<std::uint64_t>(0);
  const auto worker = run.worker_node(1);
  const auto at_worker = [&](auto action) {
    run.at(5ms + seed * 1371us, [=] {
      ++*hits;
      action();
    });
  };
  switch (what) {
  case fault::twice:
    harm_frames(run, hits, verdict::duplicate, std::nullopt);
    break;
  case fault::unanswered:
    harm_frames(run, hits, verdict::drop, proto::Frame::RESPONSE);
    break;
  case fault::unheard:
    harm_frames(run, hits, verdict::drop, proto::Frame::REQUEST);
    break;
  case fault::pause:
    at_worker([&run, worker] { run.freeze(worker); });
    run.at(30ms + seed * 1371us, [&run, worker] { run.thaw(worker); });
    break;
  case fault::leave:
    at_worker([&run, worker] { run.stop(worker, "SIGTERM"); });
    break;
  case fault::crash:
    at_worker([&run, worker] { run.crash(worker); });
    break;
  case fault::mistake:
    at_worker([&run, worker] { run.network().mislead(run.coordinator_node(), worker); });
  }
  return hits;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_run_goes_on_from_every_step) {
  some_cases chosen;
  for (const auto& mode : all_modes()) {
    const auto job = forty_steps(mode.changes, mode.checkpoint);
    site first{mode.make(job)};
    const auto whole = simulate(first.options).summary;
    BOOST_TEST_CONTEXT(mode.name) {
      BOOST_TEST_REQUIRE(whole.failure == "");
      const auto names = first.checkpoints();
      // Asynchronous workers make no checkpoint at some steps.
      BOOST_TEST_REQUIRE(names.size() >= (mode.result == bits::same ? steps / mode.checkpoint : 8));
      for (const auto& name : names) {
        if (!chosen())
          continue;
        const auto k = checkpoint_step(name);
        BOOST_TEST_CONTEXT("step " << k) {
          // The resumed run has 1, 2 or 3 shards.
          const auto how = going_on(first, job, mode.workers, mode.ps == 0 ? 0 : 1 + k % 3, k);
          const auto resumed = simulate(how).summary;
          check_complete(resumed, mode, samples_left(*how.resume));
          if (mode.result == bits::same)
            BOOST_TEST(resumed.weights_sha256 == whole.weights_sha256);
        }
      }
    }
  }
}

// Lost or repeated messages and pauses only cost time. If a worker is lost, the other workers train
// its samples. A protocol that needs all workers instead ends the run with an error that names the
// lost worker.
BOOST_AUTO_TEST_CASE(faults_of_messages_and_workers) {
  some_cases chosen;
  for (const auto& mode : all_modes()) {
    if (mode.in_one_process())
      continue;
    auto job = forty_steps(mode.changes, 0);
    apply_override(job, "runtime.request_timeout_ms=50");
    auto options = mode.make(job);
    options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 1ms; };
    const auto undisturbed = simulate(options).summary.weights_sha256;
    const auto context = make_job_context(job, shape_of(*options.data.train));
    for (const auto& [what, name] : faults)
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        const bool loses = what >= fault::leave;
        if ((loses && mode.workers == 1) || !chosen())
          continue;
        BOOST_TEST_CONTEXT(mode.name << ", " << name << ", seed " << seed) {
          options.seed = seed;
          simulation run{options};
          const auto hits = prepare(run, what, seed);
          const auto result = run.run();
          const auto& x = result.summary;
          BOOST_TEST(*hits > 0U);
          if (loses && context->protocol.needs_all)
            BOOST_TEST(x.failure.find("worker/1") != std::string::npos, x.failure);
          else
            check_complete(x, mode, 4 * records);
          BOOST_TEST((x.gone == std::vector<task_name>(loses ? 1 : 0, {job_kind::worker, 1})));
          if (!loses && mode.result == bits::same)
            BOOST_TEST(x.weights_sha256 == undisturbed);
          for (const auto& node : result.nodes)
            BOOST_TEST(node.has_value());
        }
      }
  }
}

BOOST_AUTO_TEST_SUITE_END()
