#include "actors/coordinator/coordinator.hpp"
#include "actors/model/job_file.hpp"
#include "kernels/gradient_norm.hpp"
#include "kernels/reduce.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>

// The end of an epoch and of a run.

namespace troupe {

namespace {

/// Snapshots waiting for the evaluator, each a whole copy of the weights.
constexpr std::size_t most_evaluations = 2;

/// Nodes have so long to say that they end.
constexpr std::chrono::milliseconds shutdown_timeout{1'500};

} // namespace

// -- end of an epoch ----------------------------------------------------------------------------

void coordinator::take_snapshot() {
  phase_ = phase::snapshot;
  if (evaluating_.size() >= most_evaluations)
    return; // Tried again after the next evaluation.
  snapshot_ = {};
  snapshot_.number = ++evaluations_begun_;
  snapshot_.epoch = epoch_;
  snapshot_.weights.resize(readers_.size());
  snapshot_.last = epoch_ + 1 == job().epochs();
  snapshot_missing_ = readers_.size();
  proto::Pull pull;
  pull.set_view(view_.number);
  for (std::size_t i = 0; i < readers_.size(); ++i)
    ask(
      this, readers_[i], requests(),
      [this, i](const proto::Weights& header, const payload& data) {
        on_snapshot_part(i, header, data);
      },
      [this](const caf::error& error) {
        fail("cannot read the weights at the end of the epoch: " + explain(error));
      },
      pull);
}

void coordinator::on_snapshot_part(std::size_t index, const proto::Weights& header,
                                   const payload& data) {
  snapshot_.weights[index] = {header.begin(), {header.version()}, data};
  stalls_.moved(clock().now());
  if (--snapshot_missing_ > 0 || phase_ != phase::snapshot)
    return;
  snapshot_.version = snapshot_.weights[0].version.value;
  spdlog::debug(
    "epoch {}: all of {} leases are settled, {} samples trained; snapshot of version {}",
    epoch_ + 1, epoch_leases_, epoch_samples_, snapshot_.version);
  const auto report = report_now();
  begin_evaluation(std::exchange(snapshot_, {}), report);
  if (epoch_ + 1 < job().epochs()) {
    open_epoch(epoch_ + 1);
    return;
  }
  phase_ = phase::finishing;
  summary_.seconds = report.seconds;
  summarize_tasks();
  summary_.train_loss = report.train_loss;
}

epoch_report coordinator::report_now() {
  epoch_report result;
  result.epoch = epoch_ + 1;
  result.epochs = job().epochs();
  result.validation = options_.data.validation != nullptr;
  result.seconds = seconds_since(training_began_);
  result.samples_per_second =
    static_cast<double>(epoch_samples_) / std::max(seconds_since(epoch_began_), 1e-9);
  // Unknown where all of the epoch was trained before this run: 0 / 0 is no number, and shown as
  // none.
  result.train_loss = epoch_loss_ / static_cast<double>(epoch_loss_samples_);
  return result;
}

void coordinator::begin_evaluation(evaluate what, const epoch_report& report) {
  if (evaluating_.empty())
    evaluation_began_ = clock().now();
  evaluating_.emplace(what.number, report);
  send(evaluator_, std::move(what));
}

void coordinator::on_evaluated(const evaluated& x) {
  auto i = evaluating_.find(x.number);
  if (i == evaluating_.end() || phase_ == phase::done)
    return;
  auto report = i->second;
  evaluating_.erase(i);
  const auto flat = x.weights.as_floats();
  if (!std::isfinite(x.loss) || !all_finite(flat)) {
    const auto first = first_not_finite(options_.context->parameters(), {0, flat.size()}, flat);
    fail_not_finite(first.empty() ? std::string{"the "} + evaluated_name(report.validation)
                        + " loss is not finite, though all weights are"
                                  : "the weights are not finite, first " + first,
                    report.epoch - 1);
    return;
  }
  spdlog::debug("epoch {}: version {} is evaluated, loss {:.6g}", report.epoch, x.version, x.loss);
  const auto now = clock().now();
  stalls_.moved(now);
  longest_evaluation_ = std::max(longest_evaluation_, now - evaluation_began_);
  evaluation_began_ = now;
  report.test_loss = x.loss;
  report.test_accuracy = x.accuracy;
  if (options_.observer)
    send(options_.observer, report);
  if (recorder_)
    send(recorder_, report);
  if (report.step > 0)
    end_step_evaluation(report.step);
  else
    keep_snapshot(report, x);
  if (phase_ == phase::finishing && evaluating_.empty() && reports_.empty())
    collect_reports();
  else if (phase_ == phase::finishing && reports_missing_ == 0 && !reports_.empty())
    await_checkpoints();
  else if (phase_ == phase::snapshot && snapshot_missing_ == 0)
    take_snapshot();
}

void coordinator::keep_snapshot(const epoch_report& report, const evaluated& x) {
  if (options_.weights)
    send(options_.weights, epoch_weights{report.epoch, x.version, x.weights});
  if (recorder_)
    send(recorder_, record_weights{x.version, x.weights});
  last_ = x;
  last_.weights = {};
}

// -- end of the run -----------------------------------------------------------------------------

void coordinator::collect_reports() {
  if (solves()) { // Nobody decided on gradients.
    summary_.counted = true;
    conclude();
    return;
  }
  reports_.resize(reporters_.size());
  reports_missing_ = reporters_.size();
  proto::ReportRequest question;
  question.set_view(view_.number);
  for (std::size_t i = 0; i < reporters_.size(); ++i)
    ask(
      this, reporters_[i], requests(),
      [this, i](const proto::Report& x) {
        reports_[i] = x;
        stalls_.moved(clock().now());
        if (--reports_missing_ == 0 && phase_ == phase::finishing)
          await_checkpoints();
      },
      [this](const caf::error& error) { fail("cannot balance the ledger: " + explain(error)); },
      question);
}

void coordinator::settle_accounts() {
  std::vector<worker_account> accounts;
  for (auto& worker : workers_)
    accounts.push_back(worker.account);
  lease_account leased;
  leased.expected = expected_samples_;
  leased.leased = leases_->leased();
  leased.released = leases_->released();
  leased.committed = leases_->committed();
  leased.lost = lost_samples_;
  const auto result = balance(accounts, reports_, leased);
  summary_.applied = result.applied;
  summary_.rejected_stale = result.rejected_stale;
  summary_.requeued = result.requeued;
  summary_.lost = result.lost;
  summary_.split = result.split;
  summary_.duplicates = result.duplicates;
  summary_.staleness_mean = result.staleness_mean;
  // What shards said of themselves may be a moment old; their reports are final.
  if (uses_shards())
    for (std::size_t i = 0; auto& x : summary_.tasks)
      if (x.task.job == job_kind::ps)
        x.steps = reports_[i++].version();
  summary_.counted = true;
  for (auto& problem : result.problems)
    summary_.failure +=
      (summary_.failure.empty() ? "the ledger does not balance: " : "; ") + problem;
  conclude();
}

void coordinator::fail(const std::string& reason, bool interrupted) {
  if (phase_ == phase::done)
    return;
  summary_.failure = reason;
  summary_.interrupted = interrupted;
  if (training_began_ != time_point{}) {
    summary_.seconds = seconds_since(training_began_);
    summary_.train_loss = epoch_loss_ / static_cast<double>(epoch_loss_samples_);
  }
  summarize_tasks();
  conclude();
}

void coordinator::fail_not_finite(const std::string& reason, std::uint32_t epoch) {
  if (phase_ == phase::done)
    return;
  auto text = reason + " (epoch " + std::to_string(epoch + 1) + " of "
    + std::to_string(job().epochs()) + "). ";
  if (!last_checkpoint_.empty())
    text += "The last checkpoint is " + last_checkpoint_ + ". ";
  else
    text += "No checkpoint was written; checkpoint.every_steps makes a run write some. ";
  if (!options_.output.empty())
    text += "What " + options_.output + "/weights.safetensors holds, if it is there, is older. ";
  text +=
    "Lower learning_rate.base, set optimizer.clip_norm, or look for extreme values in the data";
  summary_.not_finite = true;
  fail(text);
}

void coordinator::conclude() {
  phase_ = phase::done;
  summary_.protocol = solves() ? "exact" : options_.context->protocol.name;
  summary_.decided_by = options_.context->protocol.decided_by;
  summary_.workers =
    std::ranges::count_if(options_.tasks, [](auto& x) { return x.task.job == job_kind::worker; });
  if (summary_.seconds > 0)
    summary_.samples_per_second = static_cast<double>(summary_.samples) / summary_.seconds;
  // The evaluation is over; that its task ends now is no loss.
  anon_send_exit(evaluator_, caf::exit_reason::user_shutdown);
  if (solver_)
    anon_send_exit(solver_, caf::exit_reason::user_shutdown);
  if (options_.data.validation && !last_.weights_sha256.empty()) {
    summary_.validation_loss = last_.loss;
    summary_.validation_accuracy = last_.accuracy;
  } else if (!last_.weights_sha256.empty()) {
    last_.test = test_result{last_.loss, last_.accuracy};
  }
  summary_.test_loss = last_.test ? last_.test->loss : std::numeric_limits<double>::quiet_NaN();
  summary_.test_accuracy = last_.test ? last_.test->accuracy : std::nullopt;
  summary_.weights_sha256 = last_.weights_sha256;
  summary_.coefficients = last_.coefficients;
  if (!recorder_) {
    shut_down_nodes();
    return;
  }
  summary_.output = options_.output;
  // First whatever was to be written so far, so that the last line says if it was not.
  flush_recorder([this](const std::string& problem) {
    tell_unwritten(problem);
    send(recorder_, summary_);
    flush_recorder([this, problem](const std::string& later) {
      if (problem.empty())
        tell_unwritten(later);
      shut_down_nodes();
    });
  });
}

void coordinator::flush_recorder(std::function<void(const std::string& problem)> then) {
  ask(
    this, recorder_, requests(), [then](const record_done& x) { then(x.problem); },
    [then](const caf::error& error) { then(explain(error)); }, record_flush{});
}

void coordinator::tell_unwritten(const std::string& problem) {
  if (problem.empty())
    return;
  const auto text = "not everything was written: " + problem;
  if (summary_.failure.empty())
    summary_.failure = text;
  else
    notice(text, notice_level::error);
}

void coordinator::shut_down_nodes() {
  spdlog::debug("the run is over; telling {} tasks to end", nodes_.size());
  proto::Shutdown order;
  order.set_failed(!summary_.failure.empty());
  order.set_reason(summary_.failure);
  const auto own = caf::actor_cast<caf::actor_addr>(options_.host);
  std::set<caf::actor_addr> told{own};
  // This end itself is counted, so that it comes last.
  nodes_running_ = 1;
  for (auto& [task, node] : nodes_) {
    if (!told.insert(node.address()).second)
      continue;
    ++nodes_running_;
    request(node, shutdown_timeout, order)
      .then([this](const proto::Ack&) { node_ended(); },
            [this](const caf::error&) { node_ended(); });
  }
  node_ended();
}

void coordinator::node_ended() {
  if (--nodes_running_ > 0)
    return;
  if (options_.files)
    options_.files->unlock();
  if (options_.observer)
    send(options_.observer, summary_);
  send(options_.host, summary_);
}

// -- telling ------------------------------------------------------------------------------------

void coordinator::publish_progress() {
  if (!options_.observer && !recorder_)
    return;
  run_progress result;
  const auto now = clock().now();
  result.seconds = seconds_since(training_began_);
  result.updates = tasks_.updates();
  result.staleness_mean = tasks_.staleness_mean();
  result.staleness = tasks_.staleness();
  result.gradient_norm = tasks_.gradient_norm();
  result.tasks = tasks_.tasks(now);
  result.epoch = epoch_ + 1;
  result.epochs = job().epochs();
  result.samples = epoch_samples_;
  result.epoch_samples = options_.context->data.train_records;
  double loss = epoch_loss_;
  auto loss_samples = epoch_loss_samples_;
  for (auto& worker : workers_)
    if (worker.present) {
      result.samples += worker.live_samples;
      loss_samples += worker.live_loss_samples;
      loss += worker.live_loss;
    }
  result.train_loss = loss / static_cast<double>(std::max<std::uint64_t>(loss_samples, 1));
  result.samples_per_second =
    static_cast<double>(result.samples) / std::max(seconds_since(epoch_began_), 1e-9);
  result.samples += epoch_trained_before_;
  if (options_.observer)
    send(options_.observer, result);
  if (recorder_)
    send(recorder_, result);
}

void coordinator::notice(const std::string& text, notice_level level) {
  if (options_.observer)
    send(options_.observer, run_notice{text, level});
  if (recorder_)
    send(recorder_, run_notice{text, level});
}

double coordinator::seconds_since(time_point t) {
  return std::chrono::duration<double>(clock().now() - t).count();
}

patience coordinator::requests() const {
  return {std::chrono::milliseconds{job().runtime().request_timeout_ms()}, 3};
}

} // namespace troupe
