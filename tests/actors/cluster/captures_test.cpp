// Tests of the captures actor, which sends versions of the weights to evaluators and to the disk.
// It refuses parts that do not fit. A slow evaluator or disk delays no training.

#include "actors/checkpoint/resume.hpp"
#include "actors/coordinator/captures.hpp"
#include "messages/configure.hpp"
#include "tests/actors/cluster/ways.hpp"
#include "tests/support/example_job.hpp"

#include <nlohmann/json.hpp>

#include <boost/test/unit_test.hpp>

#include <sstream>

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

// -- a captures actor that gets messages from the test ------------------------------------------

/// The messages that the captures actor sent to the run and to the operator.
struct told {
  std::vector<std::string> failures;
  std::vector<std::uint64_t> snapshots;
  std::vector<std::uint64_t> kept; ///< versions of the ends of epochs that were evaluated
  std::vector<std::string> checkpoints;
  std::vector<epoch_report> reports;
  std::vector<std::string> early_ends;
  bool done = false;
};

class run_double : public run_actor::base {
public:
  run_double(caf::actor_config& cfg, std::shared_ptr<told> heard)
    : run_actor::base(cfg), heard_(std::move(heard)) {}

protected:
  behavior_type make_behavior() override {
    return {
      [](const view_opened&) {},
      [](const begin_run&) {},
      [](const task_lost&) {},
      [this](const end_run& x) { heard_->failures.push_back(x.reason); },
      [](const proto::LeaseRequest&) { return proto::Ack{}; },
      [](const proto::LeaseDone&) { return proto::Ack{}; },
      [](const proto::Heartbeat&) {},
      [](const proto::Leave&) { return proto::Ack{}; },
      [](const proto::Failure&) {},
      [this](const snapshot_taken& x) { heard_->snapshots.push_back(x.version); },
      [this](const snapshot_evaluated& x) { heard_->kept.push_back(x.result.version); },
      [](const capture_question& x) {
        capture_context result;
        result.report.epoch = 1;
        result.report.step = x.version;
        result.cut = lease_cut{0, {{0, 64}}};
        return result;
      },
      [this](const end_early& x) { heard_->early_ends.push_back(x.reason); },
      [this](const checkpoint_kept& x) { heard_->checkpoints.push_back(x.path); },
      [this](captures_done) { heard_->done = true; },
    };
  }

private:
  std::shared_ptr<told> heard_;
};

class progress_double : public progress_actor::base {
public:
  progress_double(caf::actor_config& cfg, std::shared_ptr<told> heard)
    : progress_actor::base(cfg), heard_(std::move(heard)) {}

protected:
  behavior_type make_behavior() override {
    return {
      [](const view_opened&) {},    [](const proto::TaskStatus&) {},
      [](const watch_tasks&) {},    [](const worker_heard&) {},
      [](const task_ended&) {},     [](moved_on) {},
      [](const run_state&) {},      [](const captures_wait&) {},
      [](const run_notice&) {},     [this](const epoch_report& x) { heard_->reports.push_back(x); },
      [](const record_weights&) {}, [](training_ended) {},
      [](const conclude_run&) {},
    };
  }

private:
  std::shared_ptr<told> heard_;
};

/// A test double of a shard's reader. It serves a range of the weights, which may be a wrong range.
/// The first version is 7, and each pull gets a newer one.
class reader_double : public reader_actor::base {
public:
  reader_double(caf::actor_config& cfg, range where) : reader_actor::base(cfg), where_(where) {}

protected:
  behavior_type make_behavior() override {
    return {[this](const proto::Pull&) -> caf::result<proto::Weights, payload> {
      proto::Weights header;
      header.set_version(version_++);
      header.set_begin(where_.begin);
      header.set_count(where_.size());
      return {std::move(header), payload::floats(where_.size())};
    }};
  }

private:
  range where_;
  std::uint64_t version_ = 7;
};

/// A test double of an evaluator task. It sends no report by itself.
class evaluator_double : public evaluation_actor::base {
public:
  using evaluation_actor::base::base;

protected:
  behavior_type make_behavior() override {
    return {[](const proto::Evaluate&, const payload&) { return proto::Ack{}; }};
  }
};

constexpr std::uint64_t current_view = 3;

struct captures_fixture {
  captures_fixture() : captures_fixture{""} {}

  /// @param more fields of Checkpoint
  /// @param fields more fields of the job
  /// @param first, best the version and the best evaluation of a checkpoint from which the run
  /// continues
  explicit captures_fixture(const std::string& more, const std::vector<std::string>& fields = {},
                            std::uint64_t first = 0, const best_evaluation& best = {}) {
    configure(config);
    config.set("scheduler.policy", caf::atom("testing"));
    system.emplace(config);
    std::vector<std::string> changes{"data.digits={train: 64 test: 20}", "output=out",
                                     "checkpoint={every_steps: 10 keep: 3" + more + "}",
                                     "evaluate={every_steps: 5}"};
    changes.insert(changes.end(), fields.begin(), fields.end());
    const auto job = example_job("digits_mlp", changes);
    captures_options how;
    how.first_version = first;
    how.best = best;
    how.data = build_data(job);
    context = how.context = make_job_context(job, shape_of(*how.data.train));
    how.output = "out";
    how.files = files;
    how.spawner = spawner{spawner::kind::cooperative};
    how.progress = system->spawn<progress_double>(heard);
    run = system->spawn<run_double>(heard);
    progress = how.progress;
    for (std::size_t i = 0; i < 2; ++i)
      parts.push_back(context->shard(i, 2));
    subject = system->spawn<captures>(std::move(how));
    view_opened view;
    view.view.number = current_view;
    caf::anon_send(subject, introduce{run});
    caf::anon_send(subject, view);
  }

  ~captures_fixture() {
    caf::anon_send_exit(subject, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(run, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(progress, caf::exit_reason::user_shutdown);
    for (auto& x : readers)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    settle();
    dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler()).clock().cancel_all();
  }

  /// Begins training with two readers that serve these ranges of the weights.
  void begin(const std::vector<range>& served) {
    auto handles = std::make_shared<cluster_handles>();
    handles->parts = handles->reader_parts = parts;
    handles->reader_tasks = {{job_kind::ps, 0}, {job_kind::ps, 1}};
    for (auto& where : served)
      readers.push_back(system->spawn<reader_double>(where));
    handles->readers = readers;
    caf::anon_send(subject, begin_run{handles});
    settle();
  }

  void settle() {
    auto& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
    while (scheduler.try_run_once())
      ;
  }

  proto::CheckpointPart header(std::uint64_t version, std::uint32_t part, std::uint32_t slot,
                               bool to_evaluate = false) const {
    proto::CheckpointPart result;
    result.set_view(current_view);
    result.set_version(version);
    result.set_part(part);
    result.set_slot(slot);
    result.set_to_evaluate(to_evaluate);
    return result;
  }

  /// Sends a part of a capture to the captures actor. Returns the code and text of the error, or
  /// `errc::none`.
  std::pair<errc, std::string> give(const proto::CheckpointPart& x, const payload& data) {
    std::pair<errc, std::string> result{errc::none, ""};
    caf::scoped_actor self{*system};
    auto answer = self->request(subject, caf::infinite, x, data);
    settle();
    answer.receive([](const proto::Ack&) {},
                   [&](const caf::error& error) {
                     result = {code_of(error), explain(error)};
                   });
    return result;
  }

  /// Sends all parts of a version: of all slots for a checkpoint, or only of the weights for an
  /// evaluation.
  void give_all(std::uint64_t version, bool to_evaluate = false) {
    for (std::uint32_t slot = 0; slot < (to_evaluate ? 1 : 1 + context->rule.slots()); ++slot)
      for (std::uint32_t part = 0; part < 2; ++part)
        BOOST_TEST(
          give(header(version, part, slot, to_evaluate), payload::floats(parts[part].size())).second
          == "");
  }

  caf::actor_system_config config;
  std::optional<caf::actor_system> system;
  std::shared_ptr<told> heard = std::make_shared<told>();
  std::shared_ptr<memory_storage> files = std::make_shared<memory_storage>();
  std::shared_ptr<const job_context> context;
  std::vector<range> parts;
  std::vector<reader_actor> readers;
  progress_actor progress;
  run_actor run;
  captures_actor subject;
};

/// A run that continues at step 20. The checkpoint was written late, when step 40 was evaluated:
/// the last two evaluations were not better than that of step 30.
struct stops_early : captures_fixture {
  stops_early()
    : captures_fixture{"", {"early_stopping={patience: 2}"}, 20, {0.5, 30, 2, 2, 40}} {}
};

struct keeps_best : captures_fixture {
  keeps_best() : captures_fixture{" keep_best: true"} {
    begin(parts);
    evaluator = system->spawn<evaluator_double>();
    caf::anon_send(subject, use_evaluator{{job_kind::evaluator, 0}, evaluator});
    settle();
  }

  ~keeps_best() { caf::anon_send_exit(evaluator, caf::exit_reason::user_shutdown); }

  void end_epoch(std::uint32_t epoch) {
    take_snapshot order;
    order.report.epoch = epoch;
    caf::anon_send(subject, order);
    settle();
  }

  void evaluated(std::uint64_t number) {
    proto::Evaluated x;
    x.set_number(number);
    x.set_loss(1);
    x.set_weights_sha256(std::string(64, '0'));
    caf::anon_send(subject, x);
    settle();
  }

  evaluation_actor evaluator;
};

// -- whole simulated runs -------------------------------------------------------------------------

struct setting {
  proto::Protocol protocol;
  std::size_t workers;
  std::size_t ps;
};

constexpr setting settings[] = {
  {proto::RING, 2, 0}, {proto::SYNC_PS, 2, 2}, {proto::ASYNC_PS, 1, 2}};

/// One epoch of 100 steps of about 20 ms. It captures more versions than may wait for an evaluation
/// or for the disk.
simulation_options hundred_steps(const setting& x) {
  const auto job =
    example_job("digits_mlp",
                {"model.layer[0].dense.units=8", "data.digits={train: 1600 test: 20}",
                 "data.batch=" + std::to_string(16 / x.workers), "epochs=1", "output=out",
                 "protocol=" + proto::Protocol_Name(x.protocol), "evaluate={every_steps: 2}",
                 "checkpoint={every_steps: 4 keep: 30}"});
  auto result = simulated(job, x.workers, x.ps);
  result.links.latency = 5ms;
  result.files = std::make_shared<memory_storage>();
  return result;
}

std::vector<json> lines_of(const memory_storage& disk, const std::string& event) {
  std::vector<json> result;
  std::istringstream in{disk.contents("out/metrics.jsonl")};
  for (std::string line; std::getline(in, line);)
    if (auto x = json::parse(line); x.at("event") == event)
      result.push_back(std::move(x));
  return result;
}

std::size_t notices_with(const simulation& run, const std::string& part) {
  return static_cast<std::size_t>(std::ranges::count_if(
    run.seen().notices, [&](auto& x) { return x.text.find(part) != std::string::npos; }));
}

/// A run in which one of the coordinator's actors hangs for about two minutes, longer than any
/// request may take. `plain` is the result of the same run without the hang.
struct held_up {
  held_up(const setting& x, const std::string& actor)
    : plain(simulate(hundred_steps(x)).summary), options(hundred_steps(x)), run(options) {
    run.at(100ms, [this, actor] { run.freeze(run.coordinator_node(), actor); });
    run.at(120s, [this, actor] { run.thaw(run.coordinator_node(), actor); });
    summary = run.run().summary;
    // The hang did not disturb training, and no gradient was lost.
    BOOST_TEST(plain.failure == "");
    BOOST_TEST(summary.failure == "");
    BOOST_TEST(summary.weights_sha256 == plain.weights_sha256);
    BOOST_TEST(summary.samples == 1600U);
    BOOST_TEST(summary.seconds < 1.1 * plain.seconds);
    BOOST_TEST(summary.seconds < 10);
  }

  run_summary plain;
  simulation_options options;
  simulation run;
  run_summary summary;
};

} // namespace

BOOST_AUTO_TEST_SUITE(captures)

BOOST_FIXTURE_TEST_CASE(parts_that_do_not_fit_are_refused, captures_fixture) {
  begin(parts);
  const auto fits = payload::floats(parts[0].size());
  const auto refused = [&](const proto::CheckpointPart& x, const payload& data,
                           const std::string& says) {
    const auto [code, text] = give(x, data);
    BOOST_TEST((code == errc::malformed), text);
    BOOST_TEST(text.find(says) != std::string::npos, text);
  };
  for (const bool to_evaluate : {false, true}) {
    refused(header(10, 2, 0, to_evaluate), fits, "there are 2 parts");
    refused(header(10, 0, 9, to_evaluate), fits, "slots besides the weights");
    refused(header(10, 0, 0, to_evaluate), payload::floats(3), "12 bytes in part 0");
    refused(header(10, 0, 0, to_evaluate), payload::allocate(fits.size() + 1), "bytes in part 0");
    refused(header(11, 0, 0, to_evaluate), fits, "version 11: expected a multiple of");
    refused(header(0, 0, 0, to_evaluate), fits, "version 0");
    refused(header(1'000'000'000, 0, 0, to_evaluate), fits, "this job ends before version");
    refused(header(10'000'000'000'000'000, 0, 0, to_evaluate), fits, "more than any run counts");
  }
  auto old = header(10, 0, 0);
  old.set_view(current_view - 1);
  BOOST_TEST((give(old, fits).first == errc::old_view));
  BOOST_TEST(heard->failures.empty());
  // After all these errors, the captures actor still works.
  give_all(10);
  give_all(10, true);
  BOOST_TEST_REQUIRE(heard->checkpoints.size() == 1U);
  BOOST_TEST(heard->checkpoints[0] == "out/checkpoints/step-00000010");
  BOOST_TEST_REQUIRE(heard->reports.size() == 1U);
  BOOST_TEST(heard->reports[0].step == 10U);
}

BOOST_FIXTURE_TEST_CASE(a_part_is_asked_for_once, captures_fixture) {
  begin(parts);
  BOOST_TEST(give(header(10, 0, 0), {}).second == "", "it is wanted");
  BOOST_TEST(give(header(10, 0, 0), payload::floats(parts[0].size())).second == "");
  BOOST_TEST((give(header(10, 0, 0), {}).first == errc::failed), "it is there");
  BOOST_TEST(give(header(10, 0, 1), {}).second == "", "another slot");
  give_all(10);
  BOOST_TEST((give(header(10, 1, 0), {}).first == errc::failed), "it is written");
}

BOOST_FIXTURE_TEST_CASE(a_snapshot_is_checked, captures_fixture) {
  begin({parts[0], {parts[1].begin + 1, parts[1].end}});
  take_snapshot order;
  order.report.epoch = 1;
  caf::anon_send(subject, order);
  settle();
  BOOST_TEST(heard->snapshots.empty());
  BOOST_TEST_REQUIRE(heard->failures.size() == 1U);
  BOOST_TEST(heard->failures[0].find("cannot read the weights at the end of the epoch: ps/1 sent")
             == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_snapshot_is_taken_and_evaluated, captures_fixture) {
  begin(parts);
  take_snapshot order;
  order.report.epoch = 1;
  caf::anon_send(subject, order);
  caf::anon_send(subject, finish_captures{});
  settle();
  BOOST_TEST((heard->snapshots == std::vector<std::uint64_t>{7}));
  BOOST_TEST(heard->reports.size() == 1U);
  BOOST_TEST(heard->done);
  BOOST_TEST(heard->failures.empty());
}

// With `keep_best`, a checkpoint waits for the evaluations that began before it, but not for later
// ones.
BOOST_FIXTURE_TEST_CASE(a_checkpoint_waits_for_earlier_evaluations, keeps_best) {
  end_epoch(1);
  give_all(10);
  BOOST_TEST(heard->checkpoints.empty());
  end_epoch(2);
  evaluated(1);
  BOOST_TEST(heard->reports.size() == 1U);
  BOOST_TEST(heard->checkpoints.size() == 1U);
}

// The newest weights are the result of the run, even if older ones are evaluated after them.
BOOST_FIXTURE_TEST_CASE(a_late_evaluation_replaces_no_newer_weights, keeps_best) {
  end_epoch(1);
  end_epoch(2);
  evaluated(2);
  evaluated(1);
  BOOST_TEST(heard->reports.size() == 2U);
  BOOST_TEST((heard->kept == std::vector<std::uint64_t>{8}));
}

// The run trains again until it has come as far as the evaluations that the checkpoint knows.
BOOST_FIXTURE_TEST_CASE(early_stopping_with_a_checkpoint_that_was_written_late, stops_early) {
  begin(parts);
  for (const std::uint64_t version : {25, 30, 35}) {
    give_all(version, true);
    BOOST_TEST(heard->reports.size() == (version - 20) / 5);
    BOOST_TEST(heard->early_ends.empty());
  }
  give_all(40, true);
  BOOST_TEST_REQUIRE(heard->early_ends.size() == 1U);
  BOOST_TEST(heard->early_ends[0].find("(step 30)") != std::string::npos);
}

// At most two snapshots wait for the evaluator. A run that was stopped reads the next one at once,
// because it must write its checkpoint.
BOOST_FIXTURE_TEST_CASE(a_stopped_run_reads_a_snapshot_at_once, keeps_best) {
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch)
    end_epoch(epoch);
  BOOST_TEST(heard->snapshots.size() == 2U);
  caf::anon_send(subject, read_without_delay{});
  settle();
  BOOST_TEST(heard->snapshots.size() == 3U);
}

/// Freezes the evaluator soon after the beginning. Then the coordinator gets a signal. The run
/// writes its state to disk and ends, without waiting for the evaluator.
void check_stop_without_evaluator(const simulation_options& options,
                                  std::chrono::milliseconds signal) {
  simulation run{options};
  run.at(100ms, [&run] { run.freeze(run.coordinator_node(), "troupe.evaluator"); });
  run.at(signal, [&run] { run.stop(run.coordinator_node(), "SIGTERM"); });
  const auto summary = run.run().summary;
  BOOST_TEST(summary.interrupted);
  BOOST_TEST(summary.failure.find("has the state") != std::string::npos, summary.failure);
  BOOST_TEST((run.elapsed() < signal + 10s));
}

BOOST_AUTO_TEST_CASE(a_slow_evaluation_and_a_signal) {
  for (auto& x : settings)
    for (const auto* best : {"", "checkpoint.keep_best=true"})
      BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol) << ' ' << best) {
        auto options = hundred_steps(x);
        if (*best != '\0')
          apply_override(options.job, best);
        check_stop_without_evaluator(options, 600ms);
      }
}

// The same at the end of an epoch, while the weights of earlier epochs still wait for the
// evaluator.
BOOST_AUTO_TEST_CASE(slow_evaluations_of_epochs_and_a_signal) {
  for (auto& x : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol)) {
      auto options = hundred_steps(x);
      for (const auto* change : {"data.digits={train: 160 test: 20}", "epochs=40"})
        apply_override(options.job, change);
      options.job.clear_evaluate();
      options.data = build_data(options.job);
      check_stop_without_evaluator(options, 5s);
    }
}

// All tasks get a signal, the coordinator first. The run ends as interrupted. It does not fail
// because its workers leave.
BOOST_AUTO_TEST_CASE(all_asynchronous_tasks_get_a_signal) {
  for (const auto workers : {1U, 3U}) {
    auto options = hundred_steps({proto::ASYNC_PS, workers, 2});
    options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 10ms; };
    simulation run{options};
    run.at(300ms, [&run, workers] {
      run.stop(run.coordinator_node(), "SIGTERM");
      for (std::size_t i = 0; i < workers; ++i)
        run.stop(run.worker_node(i), "SIGTERM");
      for (std::size_t i = 0; i < 2; ++i)
        run.stop(run.ps_node(i), "SIGTERM");
    });
    const auto summary = run.run().summary;
    BOOST_TEST(summary.interrupted);
    BOOST_TEST(summary.failure.find("has the state") != std::string::npos, summary.failure);
    BOOST_TEST((run.elapsed() < 10s));
  }
}

// A worker that is stopped finishes its gradient, even if this takes long, and leaves. It does not
// count as lost.
BOOST_AUTO_TEST_CASE(a_worker_with_slow_steps_gets_a_signal) {
  auto options = hundred_steps({proto::ASYNC_PS, 2, 2});
  apply_override(options.job, "data.digits={train: 320 test: 20}");
  options.data = build_data(options.job);
  options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 9s; };
  simulation run{options};
  run.at(56s, [&run] { run.stop(run.worker_node(1), "SIGTERM"); });
  const auto summary = run.run().summary;
  BOOST_TEST(summary.failure == "");
  BOOST_TEST_REQUIRE(summary.gone.size() == 1U);
  BOOST_TEST(to_string(summary.gone[0]) == "worker/1");
  BOOST_TEST(summary.requeued == 0U);
}

// Steps are slow: a gradient takes 700 ms. When the signal comes, each worker has two leases
// (ranges of samples to train on).
BOOST_AUTO_TEST_CASE(a_run_with_slow_steps_gets_a_signal) {
  for (auto& x : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol)) {
      auto options = hundred_steps(x);
      apply_override(options.job, "data.digits={train: 16000 test: 20}");
      options.data = build_data(options.job);
      options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 700ms; };
      simulation run{options};
      run.at(100s, [&run] { run.stop(run.coordinator_node(), "SIGTERM"); });
      const auto summary = run.run().summary;
      BOOST_TEST(summary.interrupted);
      BOOST_TEST(summary.failure.find("has the state") != std::string::npos, summary.failure);
    }
}

BOOST_AUTO_TEST_CASE(a_failure_names_the_newest_checkpoint) {
  auto options = hundred_steps({proto::SYNC_PS, 2, 2});
  options.gradient_done = [](std::size_t, std::chrono::nanoseconds now) { return now + 10ms; };
  simulation run{options};
  run.at(600ms, [&run] { run.crash(run.worker_node(1)); });
  const auto summary = run.run().summary;
  const auto names = options.files->directories(checkpoint_folder("out"));
  BOOST_TEST_REQUIRE(!names.empty());
  const auto newest = (checkpoint_folder("out") / names.back()).string();
  // The text also says where the lost task ran, and what the operator can do.
  BOOST_TEST(summary.failure.find("worker/1 is gone: ") == 0U, summary.failure);
  BOOST_TEST(summary.failure.find("; it ran at ") != std::string::npos, summary.failure);
  BOOST_TEST(summary.failure.ends_with(
               "; start all tasks again with --resume; the newest checkpoint is " + newest),
             summary.failure);
}

BOOST_AUTO_TEST_CASE(a_slow_evaluation_holds_nobody_up) {
  for (auto& x : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol)) {
      held_up late{x, "troupe.evaluator"};
      BOOST_TEST(notices_with(late.run, "some steps are not evaluated") == 1U);
      const auto found = lines_of(*late.options.files, "evaluation");
      BOOST_TEST_REQUIRE(!found.empty());
      BOOST_TEST(found.size() < 30U);
      // The last evaluation is of the newest version, even if it ends late.
      BOOST_TEST(found.back().at("step") == 100);
      BOOST_TEST(lines_of(*late.options.files, "epoch").size() == 1U);
      BOOST_TEST(late.options.files->directories(checkpoint_folder("out")).size() == 25U);
    }
}

BOOST_AUTO_TEST_CASE(a_slow_disk_holds_nobody_up) {
  for (auto& x : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol)) {
      held_up late{x, "troupe.checkpoint_writer"};
      BOOST_TEST(notices_with(late.run, "some checkpoints are left out") == 1U);
      const auto written = late.options.files->directories(checkpoint_folder("out"));
      BOOST_TEST_REQUIRE(!written.empty());
      BOOST_TEST(written.size() < 20U);
      BOOST_TEST(written.back() == "step-00000100");
      BOOST_TEST(lines_of(*late.options.files, "evaluation").size() == 50U);
    }
}

// The recorder, which writes metrics to disk, hangs for longer than a request may take. The run
// waits until its results are on disk, and does not fail.
BOOST_AUTO_TEST_CASE(a_slow_final_flush) {
  for (auto& x : settings)
    BOOST_TEST_CONTEXT(proto::Protocol_Name(x.protocol)) {
      held_up late{x, "troupe.recorder"};
      BOOST_TEST(notices_with(late.run, "still writing to out after") > 1U);
      BOOST_TEST(lines_of(*late.options.files, "evaluation").size() == 50U);
      BOOST_TEST(lines_of(*late.options.files, "epoch").size() == 1U);
      const auto end = lines_of(*late.options.files, "end");
      BOOST_TEST_REQUIRE(end.size() == 1U);
      BOOST_TEST(end[0].at("weights_sha256") == late.plain.weights_sha256);
      for (const auto* name : {"out/weights.safetensors", "out/report.html"})
        BOOST_TEST(!late.options.files->contents(name).empty(), name);
    }
}

BOOST_AUTO_TEST_SUITE_END()
