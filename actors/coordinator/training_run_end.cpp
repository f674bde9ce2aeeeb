#include "actors/coordinator/training_run.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/weight_decay_text.hpp"
#include "actors/seconds.hpp"
#include "messages/problems.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

// This file: the end of a run. It collects the final counts and waits until all captures are
// written.

namespace troupe {

namespace {

/// How long a stopped run waits for evaluations when its state is already on disk.
constexpr std::chrono::seconds evaluations_after_stop{5};

} // namespace

// Stops the run. A run with checkpoints first writes a checkpoint. For this, the workers finish
// their leases. Then the shards or ranks are asked for their last version.
void training_run::stop(const std::string& reason, bool interrupted) {
  const bool trains =
    phase_ == phase::training || phase_ == phase::snapshot || phase_ == phase::finishing;
  if (stopping_ || phase_ == phase::done)
    return;
  if (!trains || options_.output.empty() || !job().has_checkpoint()) {
    fail(reason, interrupted);
    return;
  }
  stopping_ = {reason, interrupted, clock().now() + stopping_limit};
  notice("stopping (" + reason + "): a checkpoint is written first");
  book_->stop();
  send(options_.captures, read_without_delay{});
  go_on();
}

// Ends the run early. If the run has already reached the end of its last epoch, this has no effect.
void training_run::on_end_early(const end_early& x) {
  const bool over = phase_ != phase::opening && phase_ != phase::training
    && (phase_ != phase::snapshot || book_->last_epoch());
  if (ends_soon() || over)
    return;
  summary_.ended_early = x.reason;
  if (phase_ == phase::opening)
    return; // This run continues a run that had ended early: start_training() ends it.
  book_->stop();
  go_on();
}

void training_run::check_deadline() {
  if (!stopping_)
    return;
  const auto now = clock().now();
  if (state_is_written() && now >= stopping_->deadline - stopping_limit + evaluations_after_stop) {
    end_cut_short();
    return;
  }
  if (now < stopping_->deadline)
    return;
  fail(stopping_->reason + "; the state could not be written within "
         + std::to_string(stopping_limit.count()) + " seconds",
       stopping_->interrupted);
}

// Begins the end of the run. Called when no gradient is in transit.
void training_run::finish() {
  spdlog::debug("training has ended");
  phase_ = phase::finishing;
  const auto now = book_->totals(clock().now(), false);
  summary_.seconds = now.seconds;
  summary_.train_loss = now.train_loss;
  send(options_.progress, training_ended{});
  apply_held_back([this] {
    if (phase_ == phase::finishing)
      collect_reports();
  });
}

// The version of the weights at the end of the run. Call it only when all shards or ranks have
// reported.
std::uint64_t training_run::last_version() const {
  std::uint64_t updates = std::numeric_limits<std::uint64_t>::max();
  for (auto& x : reports_)
    updates = std::min<std::uint64_t>(updates, x.version());
  return first_step_ + updates;
}

bool training_run::needs_nobody() const {
  return phase_ == phase::finishing && !cut_short_ && !reports_.empty() && reports_missing_ == 0;
}

bool training_run::state_is_written() const {
  return phase_ == phase::finishing && !reports_.empty() && reports_missing_ == 0
    && last_checkpoint_.ends_with(checkpoint_name(last_version()));
}

void training_run::end_cut_short() {
  const bool kept = state_is_written();
  fail(stopping_->reason
         + (kept ? "; " + last_checkpoint_ + " has the state, and --resume continues there"
                 : "; the state was not written"),
       stopping_->interrupted);
}

void training_run::collect_reports() {
  send(options_.captures, expect_last_version{});
  reports_.resize(handles_->reporters.size());
  reports_missing_ = reports_.size();
  for (std::size_t i = 0;
       i < (options_.context->protocol.first_reports_alone ? 1 : reports_.size()); ++i)
    collect_report(i);
}

void training_run::collect_report(std::size_t i) {
  proto::ReportRequest question;
  question.set_view(view_.number);
  ask(
    this, handles_->reporters[i], requests(),
    [this, i](const proto::Report& x) {
      if (const auto problem = problem_of(x); !problem.empty()) {
        fail("shard or rank " + std::to_string(i) + " reports " + problem);
        return;
      }
      if (phase_ != phase::finishing)
        return;
      reports_[i] = x;
      send(options_.progress, moved_on{});
      if (i == 0 && options_.context->protocol.first_reports_alone)
        for (std::size_t other = 1; other < reports_.size(); ++other)
          collect_report(other);
      if (--reports_missing_ == 0)
        finish_captures_of_reports();
    },
    [this](const caf::error& error) {
      fail_without_task("cannot get the final counts of gradients: " + explain(error));
    },
    question);
}

void training_run::finish_captures_of_reports() {
  spdlog::debug("all counts are known");
  finish_captures order{reports_.front().captured(), reports_.front().captured_to_evaluate()};
  const auto differs = [&](auto& x) { return x.version() != reports_.front().version(); };
  for (auto& x : reports_) {
    order.captured = std::min<std::uint64_t>(*order.captured, x.captured());
    order.captured_to_evaluate =
      std::min<std::uint64_t>(order.captured_to_evaluate, x.captured_to_evaluate());
  }
  // The last gradient of a lost worker may be missing on some shards. Then the shards have no
  // common last version.
  if (std::ranges::any_of(reports_, differs))
    order.captured.reset();
  if (!cut_short_ || stopping_) {
    send(options_.captures, order);
    return;
  }
  // The epoch is incomplete, but these weights are the result of the run.
  last_captures_ = order;
  take_snapshot last{report(true), true};
  last.report.step = last_version();
  send(options_.captures, std::move(last));
}

void training_run::settle_accounts() {
  summary_.counted = true;
  if (!solves()) { // The exact solver computes no gradients.
    const auto result = book_->balance(reports_);
    summary_.applied = result.applied;
    summary_.rejected_stale = result.rejected_stale;
    summary_.requeued = result.requeued;
    summary_.lost = result.lost;
    summary_.quarantined = result.quarantined;
    summary_.dropped_samples = book_->dropped();
    summary_.split = result.split;
    summary_.duplicates = result.duplicates;
    summary_.staleness_mean = result.staleness_mean;
    for (auto& problem : result.problems)
      summary_.failure +=
        (summary_.failure.empty() ? "the final counts do not match (an error in the protocol): "
                                  : "; ")
        + problem;
  }
  conclude();
}

void training_run::end(const end_run& x) {
  if (x.not_finite_in)
    fail_not_finite(x.reason, *x.not_finite_in);
  else if (x.next_view && needs_nobody())
    notice(x.reason + ", but the run needs no more tasks");
  else if (x.interrupted)
    stop(x.reason, true);
  else if (x.lost_task)
    fail_without_task(x.reason);
  else
    fail(x.reason);
}

void training_run::fail_without_task(const std::string& reason,
                                     const std::optional<task_name>& missing) {
  if (phase_ == phase::done)
    return;
  summary_.lost_task = true;
  summary_.missing = missing;
  fail(reason);
}

// If the run ends because this task is lost: where the task ran, and how the operator can continue.
std::string training_run::after_loss_of(const task_name& task) const {
  if (job().has_elastic())
    return "";
  std::string result;
  for (const auto& x : view_.members)
    if (x.task == task && !x.address.empty())
      result += "; it ran at " + x.address;
  if (!last_checkpoint_.empty())
    return result + "; start all tasks again with --resume; the newest checkpoint is "
      + last_checkpoint_;
  if (phase_ != phase::opening && !options_.output.empty())
    result += "; no checkpoint was written, so training must begin again (checkpoint.every_steps "
              "writes checkpoints)";
  return result;
}

void training_run::fail(const std::string& reason, bool interrupted) {
  if (phase_ == phase::done)
    return;
  summary_.failure = reason;
  // An elastic run continues after the loss of a task. The next view then reports the checkpoint
  // from which it continues, so the text of this failure need not name the checkpoint.
  const bool goes_on = summary_.lost_task && job().has_elastic();
  if (!goes_on && !last_checkpoint_.empty() && reason.find(last_checkpoint_) == std::string::npos)
    summary_.failure += "; the newest checkpoint is " + last_checkpoint_;
  summary_.interrupted = interrupted;
  if (began_ && phase_ != phase::finishing) {
    const auto now = clock().now();
    summary_.seconds = to_seconds(now - *began_);
    summary_.train_loss =
      book_ ? book_->totals(now, false).train_loss : std::numeric_limits<double>::quiet_NaN();
  }
  conclude();
}

void training_run::fail_not_finite(const std::string& reason, std::uint32_t epoch) {
  if (phase_ == phase::done)
    return;
  auto text = reason + " (epoch " + std::to_string(epoch + 1) + " of "
    + std::to_string(job().epochs()) + "). ";
  if (!last_checkpoint_.empty())
    text += "The last checkpoint is " + last_checkpoint_ + ". ";
  else if (job().has_checkpoint())
    text += "No checkpoint was written. ";
  else
    text += "No checkpoint was written; to get some, set checkpoint.every_steps. ";
  if (!options_.output.empty())
    text += options_.output + "/weights.safetensors, if it exists, holds older weights. ";
  text +=
    "Lower learning_rate.base, set optimizer.clip_norm, or look for extreme values in the data";
  summary_.not_finite = true;
  fail(text);
}

void training_run::conclude() {
  phase_ = phase::done;
  summary_.checkpoint = last_checkpoint_;
  summary_.protocol = solves() ? "exact" : options_.context->protocol.name;
  summary_.decided_by = options_.context->protocol.decided_by;
  summary_.workers = book_ ? book_->workers().size() : options_.workers;
  summary_.views = options_.views_before + 1;
  if (book_)
    summary_.samples = book_->samples();
  if (summary_.seconds > 0)
    summary_.samples_per_second = static_cast<double>(summary_.samples) / summary_.seconds;
  if (options_.data.validation && !last_.weights_sha256.empty()) {
    summary_.validation_loss = last_.loss;
    summary_.validation_accuracy = last_.accuracy;
  } else if (!last_.weights_sha256.empty()) {
    last_.test = test_result{last_.loss, last_.accuracy, last_.measures};
  }
  summary_.test_loss = last_.test ? last_.test->loss : std::numeric_limits<double>::quiet_NaN();
  summary_.test_accuracy = last_.test ? last_.test->accuracy : std::nullopt;
  summary_.measures = last_.test ? last_.test->measures : measured{};
  if (!summary_.measures.confusion.empty())
    summary_.class_names = options_.data.class_names;
  summary_.weights_sha256 = last_.weights_sha256;
  summary_.coefficients = last_.coefficients;
  summary_.ridge = weight_decay_text(*options_.context);
  conclude_run order{summary_, {}};
  // The last status messages of shards may be slightly out of date, so use the numbers of their
  // final reports.
  if (options_.context->protocol.uses_shards() && summary_.counted)
    for (auto& x : reports_)
      order.updates.push_back(x.version());
  send(options_.progress, std::move(order));
}

} // namespace troupe
