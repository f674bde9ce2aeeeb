#include "actors/coordinator/captures.hpp"

#include "actors/checkpoint/resume.hpp"
#include "actors/model/replica_state.hpp"
#include "kernels/cpu/reduce.hpp"
#include "kernels/optimizers/gradient_norm.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

// This file: snapshots and their evaluation. captures_parts.cpp handles captures (the copies of a
// version that shards and ranks send by themselves).

namespace troupe {

namespace {

constexpr std::chrono::milliseconds captures_tick_interval{250};

/// Largest number of snapshots that wait for the evaluator. Each snapshot is a copy of all weights.
/// After a stop, there may be one more.
constexpr std::size_t most_snapshots = 2;

/// The time limit of an evaluation, as a multiple of the longest evaluation so far.
constexpr int evaluation_patience = 4;

constexpr std::chrono::nanoseconds least_first_evaluation = std::chrono::seconds{5};

/// How long a checkpoint at the end of a run waits for evaluations. A longer wait is dangerous: a
/// run that is stopped has only `stopping_limit` to write the checkpoint.
constexpr std::chrono::seconds longest_hold{5};

} // namespace

captures::captures(caf::actor_config& cfg, captures_options options)
  : super(cfg), options_(std::move(options)), counted_before_(options_.best.newest) {}

captures::behavior_type captures::make_behavior() {
  evaluations_options how;
  how.context = options_.context;
  how.source = [data = options_.data](const proto::Job&) { return data; };
  how.device = options_.device;
  how.listener = caf::actor_cast<evaluation_listener>(this);
  how.observer = options_.observer;
  how.requests = requests();
  how.spawner = options_.spawner;
  evaluator_ = options_.spawner.spawn_heavy<evaluations>(system(), std::move(how));
  monitor(evaluator_);
  if (!options_.output.empty() && job().has_checkpoint()) {
    writer_ = options_.spawner.spawn_heavy<checkpoint_writer>(
      system(), options_.context, options_.files, checkpoint_folder(options_.output),
      caf::actor_cast<checkpoint_listener>(this));
    monitor(writer_);
    ++children_;
  }
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  delayed_send(this, captures_tick_interval, tick{});
  return {
    [this](const introduce& x) { run_ = x.run; },
    [this](const view_opened& x) { view_ = x.view; },
    [this](const begin_run& x) { on_begin(x); },
    [this](const use_evaluator& x) { send(evaluator_, x); },
    in_view(this, &captures::on_part),
    [this](const proto::Evaluated& x) {
      send(evaluator_, x);
      return proto::Ack{};
    },
    [this](const take_snapshot& x) { on_take(x); },
    [this](const evaluate_solution& x) {
      begin_evaluation({++evaluations_begun_, 0, 1, {{0, 1, x.weights}}, true}, x.report);
    },
    [this](read_without_delay) {
      without_delay_ = true;
      read_snapshot();
    },
    [this](expect_last_version) {
      if (checkpoints_)
        checkpoints_->expect_end();
      hold_limit_ = clock().now() + longest_hold;
    },
    [this](const finish_captures& x) { on_finish(x); },
    [this](end_captures) { return on_end(); },
    [this](const evaluated& x) { on_evaluated(x); },
    [this](const checkpoint_written& x) { on_written(x); },
    [this](tick) { on_tick(); },
  };
}

void captures::on_down(const caf::down_msg& x) {
  --children_;
  if (!ended_)
    fail("the coordinator's evaluation or output ended: " + explain(x.reason));
  else if (children_ == 0)
    ended_->deliver(proto::Ack{});
}

caf::result<proto::Ack> captures::on_end() {
  if (children_ == 0)
    return proto::Ack{};
  ended_ = make_response_promise<proto::Ack>();
  anon_send_exit(evaluator_, caf::exit_reason::user_shutdown);
  if (writer_)
    anon_send_exit(writer_, caf::exit_reason::user_shutdown);
  return *ended_;
}

void captures::on_exit() {
  anon_send_exit(evaluator_, caf::exit_reason::user_shutdown);
  if (writer_)
    anon_send_exit(writer_, caf::exit_reason::user_shutdown);
  evaluator_ = nullptr;
  writer_ = nullptr;
  run_ = nullptr;
  handles_.reset();
  options_.progress = nullptr;
  options_.observer = nullptr;
  options_.weights = nullptr;
}

// -- at the end of an epoch ---------------------------------------------------------------------

void captures::on_take(const take_snapshot& x) {
  wanted_ = x;
  read_snapshot();
}

// Reads the weights for a snapshot that was requested. Does nothing if too many snapshots wait for
// evaluation, unless the run was stopped. It is called again after each evaluation.
void captures::read_snapshot() {
  if (wanted_ && snapshot_missing_ == 0
      && (without_delay_ || snapshots_evaluating() < most_snapshots)) {
    snapshot_ = {};
    snapshot_.number = ++evaluations_begun_;
    snapshot_.epoch = wanted_->report.epoch - 1;
    snapshot_.weights.resize(handles_->readers.size());
    snapshot_.last = wanted_->last;
    snapshot_.midst = wanted_->report.step > 0;
    if (snapshot_.midst)
      early_end_ = snapshot_.number;
    snapshot_missing_ = handles_->readers.size();
    proto::Pull pull;
    pull.set_view(view_.number);
    for (std::size_t i = 0; i < handles_->readers.size(); ++i)
      ask(
        this, handles_->readers[i],
        requests().for_bytes(handles_->reader_parts[i].size() * sizeof(float)),
        [this, i](const proto::Weights& header, const payload& data) {
          on_part_read(i, header, data);
        },
        [this, task = handles_->reader_tasks[i]](const caf::error& error) {
          if (run_)
            send(run_,
                 end_run{"cannot read the weights of " + to_string(task)
                           + " at the end of the epoch: " + explain(error),
                         false, std::nullopt, true});
        },
        pull);
  }
  report_wait();
}

std::string captures::misfit(std::size_t index, const proto::Weights& header,
                             const payload& data) const {
  const auto& where = handles_->reader_parts[index];
  if (header.begin() == where.begin && header.count() == where.size()
      && data.size() == where.size() * sizeof(float))
    return {};
  return to_string(handles_->reader_tasks[index]) + " sent " + std::to_string(data.size())
    + " bytes as parameters " + std::to_string(header.begin()) + " to "
    + std::to_string(header.begin() + header.count()) + ", but holds " + std::to_string(where.begin)
    + " to " + std::to_string(where.end);
}

void captures::on_part_read(std::size_t index, const proto::Weights& header, const payload& data) {
  if (const auto problem = misfit(index, header, data); !problem.empty()) {
    fail("cannot read the weights at the end of the epoch: " + problem);
    return;
  }
  snapshot_.weights[index] = {header.begin(), header.version(), data};
  send(options_.progress, moved_on{});
  if (--snapshot_missing_ > 0) {
    report_wait();
    return;
  }
  snapshot_.version = snapshot_.weights[0].version.value;
  spdlog::debug("epoch {}: snapshot of version {}", wanted_->report.epoch, snapshot_.version);
  send(run_, snapshot_taken{snapshot_.version});
  const auto report = wanted_->report;
  wanted_.reset();
  begin_evaluation(std::exchange(snapshot_, {}), report);
}

// -- evaluations --------------------------------------------------------------------------------

void captures::begin_evaluation(evaluate what, const epoch_report& report) {
  if (evaluating_.empty())
    evaluation_began_ = clock().now();
  evaluating_.emplace(what.number, report);
  send(evaluator_, std::move(what));
  report_wait();
}

void captures::on_evaluated(const evaluated& x) {
  auto i = evaluating_.find(x.number);
  if (i == evaluating_.end())
    return;
  auto report = i->second;
  evaluating_.erase(i);
  const auto flat = x.weights.as_floats();
  if (!std::isfinite(x.loss) || !all_finite(flat)) {
    const auto first = first_not_finite(options_.context->parameters(), {0, flat.size()}, flat);
    send(run_,
         end_run{first.empty() ? std::string{"the "} + evaluated_name(report.validation)
                     + " loss is not finite, although all weights are"
                               : "the weights are not finite, first " + first,
                 false, report.epoch - 1});
    return;
  }
  spdlog::debug("epoch {}: version {} is evaluated, loss {:.6g}", report.epoch, x.version, x.loss);
  const auto now = clock().now();
  send(options_.progress, moved_on{});
  longest_evaluation_ = std::max(longest_evaluation_, now - evaluation_began_);
  evaluation_began_ = now;
  report.test_loss = x.loss;
  report.test_accuracy = x.accuracy;
  report.measures = x.measures;
  const bool last = x.number == early_end_;
  if (!last) // The last weights of a run that ends early do not become the best weights.
    compare(report, x);
  send(options_.progress, report);
  if (report.step > 0 && !last) {
    to_evaluate_->done();
    next_evaluation();
  } else {
    keep_snapshot(report, x);
  }
  write_held();
  read_snapshot();
  end_if_done();
}

bool captures::compares() const {
  return job().has_early_stopping() || job().checkpoint().keep_best();
}

void captures::compare(const epoch_report& report, const evaluated& x) {
  if (!compares())
    return;
  // The evaluation of an epoch's end may finish before the evaluation of an earlier version that
  // still waits. A version may also be evaluated twice: within an epoch, and at the end of the
  // epoch.
  auto& best = options_.best;
  const auto newest = std::exchange(best.newest, counted_before_);
  const bool better = compared_.insert(x.version).second
    && best.add(x.loss, x.version, report.epoch, job().early_stopping().min_delta());
  best.newest = std::max(newest, x.version);
  if (better)
    send(options_.progress, record_weights{x.version, x.weights, report.epoch, best});
  end_if_worse(x.version);
}

/// Ends the run if the newest evaluations were worse than the best one. A checkpoint may know
/// evaluations of later versions than its own. They count once this run has evaluated a version at
/// least as new.
/// @param version the newest evaluated version, or the version at which this run begins
void captures::end_if_worse(std::uint64_t version) {
  const auto& best = options_.best;
  if (!job().has_early_stopping() || best.since < job().early_stopping().patience()
      || version < counted_before_)
    return;
  send(run_,
       end_early{"early_stopping: the last " + std::to_string(best.since)
                 + " evaluations were not better than that of epoch " + std::to_string(best.epoch)
                 + " (step " + std::to_string(best.step) + ")"});
}

void captures::keep_snapshot(const epoch_report& report, const evaluated& x) {
  // The end of an epoch may be evaluated before the end of the previous epoch, if an evaluator task
  // begins its work in between. The newer weights then stay.
  if (x.version < newest_kept_)
    return;
  newest_kept_ = x.version;
  if (options_.weights)
    send(options_.weights, epoch_weights{report.epoch, x.version, x.weights});
  send(options_.progress, record_weights{x.version, x.weights, report.epoch});
  auto result = x;
  result.weights = {};
  send(run_, snapshot_evaluated{std::move(result)});
}

std::size_t captures::snapshots_evaluating() const {
  return static_cast<std::size_t>(
    std::ranges::count_if(evaluating_, [](auto& x) { return x.second.step == 0; }));
}

// Returns the time of the longest evaluation so far. Before the first evaluation has finished, this
// is an estimate: the time that one worker would need to train the samples that are evaluated. An
// evaluation takes less time than that. A run that resumes near the end of an epoch has trained
// very little. Therefore its estimate has a minimum.
std::chrono::nanoseconds captures::evaluation_time() const {
  if (longest_evaluation_.count() > 0)
    return longest_evaluation_;
  const auto tested = static_cast<double>(options_.data.evaluated()->size());
  const auto trained = static_cast<double>(options_.data.train->size());
  const auto workers = static_cast<double>(view_.of(job_kind::worker).size());
  const std::chrono::nanoseconds estimate{static_cast<std::int64_t>(
    1e9 * evaluating_.begin()->second.seconds * workers * tested / trained)};
  return options_.first_version > 0 ? std::max(estimate, least_first_evaluation) : estimate;
}

// -- the end ------------------------------------------------------------------------------------

void captures::on_tick() {
  delayed_send(this, captures_tick_interval, tick{});
  const auto now = clock().now();
  const auto parameters = options_.context->parameters().size() * sizeof(float);
  const auto late = [&](std::size_t slots) {
    return requests().for_bytes(parameters * slots).all();
  };
  payload_meter::time_point moved;
  for (std::size_t i = 0; handles_ && i < handles_->reporters.size(); ++i)
    if (const auto* holder = port_of(handles_->reporters[i]))
      moved = std::max(moved, holder->meter()->moved());
  write_held();
  if (to_evaluate_)
    to_evaluate_->drop_late(now, late(1), moved);
  if (checkpoints_)
    checkpoints_->drop_late(
      now, late(1 + state_names(*options_.context, view_.of(job_kind::worker).size()).size()),
      moved);
  end_if_done();
}

void captures::on_finish(const finish_captures& x) {
  finish_ = x;
  if (checkpoints_)
    checkpoints_->finish(x.captured, clock().now());
  if (to_evaluate_)
    to_evaluate_->finish(x.captured_to_evaluate, clock().now());
  end_if_done();
}

void captures::end_if_done() {
  report_wait();
  const bool busy =
    (checkpoints_ && !checkpoints_->idle()) || (to_evaluate_ && !to_evaluate_->idle());
  if (!finish_ || busy || !evaluating_.empty())
    return;
  finish_.reset();
  if (checkpoints_failed_ > 1)
    notice(std::to_string(checkpoints_failed_) + " checkpoints were not written",
           notice_level::warning);
  if (missed_checkpoints_reported_ > 0 && checkpoints_->missed() > 1)
    notice(std::to_string(checkpoints_->missed()) + " checkpoints were left out",
           notice_level::warning);
  if (missed_evaluations_reported_ > 0 && to_evaluate_->missed() > 1)
    notice(std::to_string(to_evaluate_->missed()) + " evaluations were left out",
           notice_level::warning);
  send(run_, captures_done{});
}

// -- reports ------------------------------------------------------------------------------------

coordinator_wait captures::wait() const {
  using reason = coordinator_wait::reason;
  coordinator_wait result;
  if (snapshot_missing_ > 0) {
    result.what = reason::weights;
    for (std::size_t i = 0; i < snapshot_.weights.size(); ++i)
      if (snapshot_.weights[i].data.empty())
        result.tasks.push_back(handles_->reader_tasks[i]);
  } else if (!evaluating_.empty()) {
    result.what = reason::evaluation;
    result.patience = evaluation_patience * evaluation_time();
  } else if (checkpoints_ && checkpoints_->out()) {
    result.what = reason::checkpoint;
  }
  return result;
}

void captures::report_wait() {
  auto now = wait();
  if (now.what == wait_.what && now.tasks == wait_.tasks && now.patience == wait_.patience)
    return;
  wait_ = now;
  send(options_.progress, captures_wait{std::move(now)});
}

void captures::notice(const std::string& text, notice_level level) {
  send(options_.progress, run_notice{text, level});
}

void captures::fail(const std::string& reason) {
  if (run_)
    send(run_, end_run{reason});
}

} // namespace troupe
