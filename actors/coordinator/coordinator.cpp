#include "actors/coordinator/coordinator.hpp"

#include "actors/checkpoint/own_checkpoint.hpp"
#include "actors/coordinator/captures.hpp"
#include "actors/coordinator/progress.hpp"
#include "actors/coordinator/training_run.hpp"
#include "messages/configure.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

// This file: the messages that the actor `coordinator` forwards, and the end of the run.
// coordinator_join.cpp handles joining and connecting.

namespace troupe {

namespace {

/// How long nodes may take to confirm the end of the run.
constexpr std::chrono::milliseconds shutdown_timeout{1'500};

} // namespace

proto::Failure stopped_task(const task_name& task, const std::string& reason) {
  proto::Failure result;
  *result.mutable_task() = to_proto(task);
  result.set_reason(to_string(task) + " was stopped (" + reason + ')');
  result.set_goes_on(true);
  result.set_stopped(true);
  return result;
}

coordinator::coordinator(caf::actor_config& cfg, coordinator_options options)
  : super(cfg), options_(std::move(options)),
    members_(options_.tasks, options_.context, version()) {}

coordinator::behavior_type coordinator::make_behavior() {
  began_ = clock().now();
  set_down_handler([this](caf::down_msg& x) { on_down(x); });
  start_parts();
  for (auto& text : options_.notices)
    notice(text);
  send(this, tick{});
  return {
    [this](const proto::Join& x) { return on_join(x); },
    [this](const proto::LeaseRequest& x) { return delegate(run_, x); },
    [this](const proto::LeaseDone& x) { return delegate(run_, x); },
    [this](const proto::Heartbeat& x) { send(run_, x); },
    [this](const proto::Leave& x) { return delegate(run_, x); },
    [this](const proto::Failure& x) { on_failure(x); },
    [this](const proto::TaskStatus& x) { send(progress_, x); },
    [this](const proto::Evaluated& x) { return delegate(captures_, x); },
    [this](const proto::CheckpointPart& x, const payload& data) {
      return delegate(captures_, x, data);
    },
    [this](const run_over& x) { on_over(x); },
    [this](const end_run& x) { send(run_, x); },
    [this](const stop_run& x) {
      stopped_ = true;
      send(run_, end_run{x.reason, true});
    },
    [this](const answer_second_start& x) { on_answer_second_start(x); },
    [this](tick) { report_waiting(); },
  };
}

void coordinator::start_parts() {
  progress_options how;
  how.context = options_.context;
  how.output = options_.output;
  how.files = options_.files;
  how.origin = options_.origin;
  how.resume = options_.resume;
  // If this run continues in the checkpoint's output directory, the best weights so far are there
  // too. In another directory they are missing, so the best evaluation so far does not count.
  std::optional<best_evaluation> best;
  if (options_.resume && is_own_checkpoint(*options_.resume, options_.output))
    best = options_.resume->manifest.best;
  how.best = best;
  how.observer = options_.observer;
  how.spawner = options_.spawner;
  how.listener = caf::actor_cast<conclusion_listener>(this);
  progress_ = options_.spawner.spawn_light<progress>(system(), std::move(how));
  captures_options capturing;
  capturing.context = options_.context;
  capturing.data = options_.data;
  capturing.output = options_.output;
  capturing.files = options_.files;
  capturing.first_version = options_.resume ? options_.resume->manifest.step : 0;
  capturing.best = best.value_or(best_evaluation{});
  capturing.observer = options_.observer;
  capturing.weights = options_.weights;
  capturing.spawner = options_.spawner;
  capturing.device = options_.device;
  capturing.progress = progress_;
  if (options_.resume)
    resumed_marks_ = options_.resume->manifest.marks;
  capturing.resumed_marks = resumed_marks_;
  captures_ = options_.spawner.spawn_light<captures>(system(), std::move(capturing));
  const auto before = options_.resume ? options_.resume->manifest.view : 0;
  view_.number = std::max(before, options_.after.last) + 1;
  training_run_options running;
  running.context = options_.context;
  running.data = options_.data;
  running.resume = std::move(options_.resume);
  running.initial = std::move(options_.initial);
  running.workers = members_.expected_of(job_kind::worker);
  running.views_before = options_.after.views;
  running.constant_guess = options_.constant_guess;
  running.output = options_.output;
  running.spawner = options_.spawner;
  running.captures = captures_;
  running.progress = progress_;
  run_ = options_.spawner.spawn_light<training_run>(system(), std::move(running));
  send(captures_, introduce{run_});
  monitor(progress_);
  monitor(captures_);
  monitor(run_);
}

void coordinator::on_exit() {
  for (const auto& x : {caf::actor_cast<caf::actor>(run_), caf::actor_cast<caf::actor>(captures_),
                        caf::actor_cast<caf::actor>(progress_)})
    anon_send_exit(x, caf::exit_reason::user_shutdown);
  run_ = nullptr;
  captures_ = nullptr;
  progress_ = nullptr;
  if (options_.files)
    options_.files->unlock();
  options_.host = nullptr;
  options_.observer = nullptr;
  options_.weights = nullptr;
  handles_.reset();
  nodes_.clear();
  for (auto& [number, x] : std::exchange(second_starts_, {}))
    too_early_.push_back(std::move(x.answer));
  for (auto& x : std::exchange(too_early_, {}))
    x.deliver(make_error(errc::link_lost, "the coordinator begins the next view"));
}

void coordinator::on_down(const caf::down_msg& x) {
  if (phase_ == phase::done)
    return;
  if (x.source == run_.address() || x.source == captures_.address()
      || x.source == progress_.address()) {
    quit(x.reason); // This is a bug. The node reports it.
    return;
  }
  if (auto node = monitored_nodes_.find(x.source); node != monitored_nodes_.end())
    on_node_down(node->second, to_string(node->second) + " is gone: " + explain(x.reason));
  if (auto i = monitored_.find(x.source); i != monitored_.end())
    send(run_, task_lost{i->second, explain(x.reason)});
}

// -- the end ------------------------------------------------------------------------------------

void coordinator::fail(const std::string& reason) {
  send(run_, end_run{reason});
}

void coordinator::fail_without_task(const std::string& reason) {
  end_run order{reason};
  order.lost_task = true;
  send(run_, std::move(order));
}

// Number of views since the newest checkpoint that ended because a task was lost, including this
// view. Call it only if this view ends because a task was lost.
std::uint32_t coordinator::losses_after(const run_summary& x) const {
  return (x.checkpoint == options_.after.checkpoint ? options_.after.losses : 0) + 1;
}

bool coordinator::continues(const run_summary& x) const {
  const auto most = job().elastic().max_losses();
  return elastic() && !x.failure.empty() && !x.not_finite && !stopped_
    && (!view_ends_.empty() || (x.lost_task && losses_after(x) <= most));
}

void coordinator::on_over(const run_over& x) {
  phase_ = phase::done;
  summary_ = x.summary;
  if (continues(summary_)) {
    const bool lost = view_ends_.empty();
    const bool written = summary_.checkpoint != options_.after.checkpoint;
    if (!lost && !written)
      view_ends_ += "; no new checkpoint was written";
    next_ = next_view{view_.number, summary_.views, lost ? summary_.failure : view_ends_,
                      losses_after(summary_) - (lost ? 0 : 1), summary_.checkpoint};
  } else if (elastic() && summary_.lost_task) {
    summary_.interrupted = summary_.interrupted || stopped_;
    const auto most = job().elastic().max_losses();
    if (!stopped_ && losses_after(summary_) > most)
      summary_.failure += "; that makes " + std::to_string(losses_after(summary_))
        + " losses in a row without a new checkpoint (elastic.max_losses: " + std::to_string(most)
        + ")";
    if (!summary_.checkpoint.empty())
      summary_.failure += "; the newest checkpoint is " + summary_.checkpoint;
  }
  // The evaluations are over, so losing the evaluator task no longer matters.
  if (!next_)
    anon_send_exit(captures_, caf::exit_reason::user_shutdown);
  spdlog::debug("{} is over; telling {} tasks",
                next_ ? "view " + std::to_string(view_.number) : "the run", nodes_.size());
  proto::Shutdown order;
  order.set_next_view(next_.has_value());
  order.set_failed(!summary_.failure.empty());
  order.set_reason(summary_.failure);
  if (summary_.missing)
    *order.mutable_lost() = to_proto(*summary_.missing);
  const auto own = caf::actor_cast<caf::actor_addr>(options_.host);
  std::set<caf::actor_addr> told{own};
  // Start with 1 for this node itself, so that this node ends after all others.
  nodes_running_ = 1;
  // The next view reads the folder of checkpoints. So the checkpoint writer of this view must end
  // first.
  if (next_) {
    ++nodes_running_;
    request(captures_, join_timeout(), end_captures{})
      .then([this](const proto::Ack&) { node_ended(); },
            [this](const caf::error&) { node_ended(); });
  }
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
  if (next_) {
    send(options_.host, *next_);
    return;
  }
  if (options_.observer)
    send(options_.observer, summary_);
  send(options_.host, summary_);
}

void coordinator::notice(const std::string& text, notice_level level) {
  send(progress_, run_notice{text, level});
}

} // namespace troupe
