#include "actors/coordinator/progress.hpp"

#include "actors/boot_id.hpp"
#include "messages/problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

std::string evaluated_text(const epoch_report& x) {
  return fmt::format("{} {} evaluated: loss {:.5g}", x.step > 0 ? "step" : "epoch",
                     x.step > 0 ? x.step : x.epoch, x.test_loss);
}

} // namespace

progress::progress(caf::actor_config& cfg, progress_options options)
  : super(cfg), options_(std::move(options)), timeline_(boot_number()) {}

progress::behavior_type progress::make_behavior() {
  if (!options_.output.empty()) {
    recorder_ = options_.spawner.spawn_heavy<recorder>(system(), options_.context, options_.files,
                                                       options_.output, options_.origin,
                                                       std::exchange(options_.resume, nullptr));
    monitor(recorder_);
  }
  set_down_handler([this](caf::down_msg& x) {
    recorder_ = nullptr;
    send(options_.listener,
         end_run{"the coordinator's evaluation or output ended: " + explain(x.reason)});
  });
  return {
    [this](const view_opened& x) { view_ = x.view.number; },
    in_view(this, &progress::on_status),
    [this](const watch_tasks& x) { on_watch(x); },
    [this](const worker_heard& x) { tasks_.hear(x.task, x.progress, clock().now()); },
    [this](const task_ended& x) {
      tasks_.end(x.task, x.how);
      stalls_.forget(x.task);
    },
    [this](moved_on) { stalls_.moved(clock().now()); },
    [this](const run_state& x) { on_state(x); },
    [this](const captures_wait& x) { captures_wait_ = x.wait; },
    [this](const run_notice& x) { notice(x); },
    [this](const epoch_report& x) {
      if (options_.observer)
        send(options_.observer, x);
      timeline_.mark(evaluated_text(x), clock().now());
      record(x);
    },
    [this](const record_weights& x) {
      if (x.best)
        options_.best = x.best;
      else
        newest_weights_ = x.version;
      record(x);
    },
    [this](training_ended) { summarize_tasks(); },
    [this](const conclude_run& x) { on_conclude(x); },
  };
}

void progress::on_exit() {
  if (recorder_)
    anon_send_exit(recorder_, caf::exit_reason::user_shutdown);
  recorder_ = nullptr;
  options_.listener = nullptr;
  options_.observer = nullptr;
}

// -- activity of tasks ----------------------------------------------------------------------------

void progress::on_watch(const watch_tasks& x) {
  const auto now = clock().now();
  links_ = x.links;
  tasks_.begin(x.all, x.idle, now);
  const auto& context = *options_.context;
  stall_conditions how;
  how.needs_all = context.protocol.needs_all;
  how.elastic = context.job.has_elastic();
  how.network = x.network;
  how.steps_between_waits = context.protocol.waits_after(context.job);
  stalls_.begin(x.at_work, how, now);
}

void progress::on_status(const proto::TaskStatus& x) {
  task_name task;
  if (!from_proto(x.task(), task) || !problem_of(x).empty())
    return;
  const auto now = clock().now();
  tasks_.hear(task, x, now);
  stalls_.hear(task, x, now);
  if (recorder_)
    timeline_.hear(task, x, now);
  // The task may answer the coordinator only after it has exchanged payloads with other tasks. So
  // its requests to this task must not fail meanwhile: see ask().
  const auto link = links_.find(task);
  if (link != links_.end() && x.has_payload_seconds() && x.payload_seconds() < 1)
    link->second->touch(now);
  if (x.pacing().halvings() > halvings_) {
    halvings_ = x.pacing().halvings();
    notice(
      {fmt::format("the loss has grown: from now on the learning rate is multiplied by {:g} at "
                   "most. Lower learning_rate.base",
                   std::ldexp(1, -static_cast<int>(std::min<std::uint64_t>(halvings_, 1000)))),
       notice_level::warning});
  }
}

void progress::on_state(const run_state& x) {
  if (summary_)
    return;
  if (x.progress)
    publish(*x.progress);
  report_hot_shard();
  for (const auto& [task, link] : links_)
    stalls_.exchange(task, link->bytes(), clock().now());
  if (auto text = stalls_.judge(x.for_captures ? captures_wait_ : x.wait, clock().now())) {
    notice({std::move(*text), notice_level::warning});
    timeline_due_ = true;
    record_next();
  }
}

void progress::publish(run_progress x) {
  if (!options_.observer && !recorder_)
    return;
  const auto now = clock().now();
  x.updates = tasks_.updates();
  x.updates_per_second = tasks_.updates_per_second(now);
  x.quarantined = tasks_.quarantined();
  x.pacing = tasks_.pacing();
  x.staleness_mean = tasks_.staleness_mean();
  x.staleness = tasks_.staleness();
  x.gradient_norm = tasks_.gradient_norm();
  x.tasks = tasks_.tasks(now);
  if (options_.observer)
    send(options_.observer, x);
  record(std::move(x));
}

void progress::report_hot_shard() {
  const auto found = hot_shard_reported_ ? std::nullopt : tasks_.hottest_shard(clock().now());
  if (!found)
    return;
  hot_shard_reported_ = true;
  const auto& context = *options_.context;
  const std::string remedy = context.rule.by_tensor()
    ? "LAMB needs whole tensors: use optimizer.kind: ADAMW, or a smaller largest tensor"
    : context.job.placement() == proto::BY_TENSOR
    ? "Leave out placement: BY_TENSOR, so that large tensors are divided"
    : "Use more parameter servers, or set placement: BY_TENSOR";
  const auto share = std::isinf(found->times_others)
    ? std::string{"all bytes of the parameter servers"}
    : fmt::format("{:.1f} times as many bytes as the mean of the other parameter servers",
                  found->times_others);
  notice({fmt::format("{} carries {}, {:.1f} MB per second: workers wait for it. {}",
                      to_string(found->task), share, found->bytes_per_second / 1e6, remedy),
          notice_level::warning});
}

void progress::summarize_tasks() {
  at_end_.emplace();
  at_end_->tasks = tasks_.tasks_at_end(clock().now());
  at_end_->staleness = tasks_.staleness();
  at_end_->staleness_mean = tasks_.staleness_mean();
  at_end_->updates_per_second = tasks_.updates_per_second(clock().now());
  at_end_->pacing = tasks_.pacing();
}

void progress::notice(const run_notice& x) {
  if (options_.observer)
    send(options_.observer, x);
  timeline_.mark(x.text, clock().now());
  record(x);
}

// -- the output ---------------------------------------------------------------------------------

// Queues a record for the output. The summary is the last record: if an epoch's evaluation ends
// later, it is not recorded.
template <class T>
void progress::record(T x) {
  if (!recorder_ || ending_ == ending::summary || ending_ == ending::over)
    return;
  queue_.push(std::move(x));
  record_next();
}

void progress::record_next() {
  if (recording_)
    return;
  if (auto next = recorder_ ? queue_.pop() : std::nullopt) {
    std::visit([this](auto& x) { send(recorder_, std::move(x)); }, *next);
    await_disk();
  } else if (recorder_ && timeline_due_) {
    timeline_due_ = false;
    send(recorder_, record_timeline{std::make_shared<run_timeline>(timeline_.newest())});
    await_disk();
  } else if (summary_) {
    record_end();
  }
}

// Waits until the recorder has written a record. There is no time limit, because a slow disk is not
// a failure. If a request times out, this function asks again.
void progress::await_disk() {
  recording_ = true;
  const auto deadline = requests_of(options_.context->job).timeout;
  request(recorder_, deadline, record_flush{})
    .then(
      [this](const record_done& x) {
        recording_ = false;
        problem_ = x.problem;
        weights_on_disk_ = x.weights;
        best_on_disk_ = x.best;
        record_next();
      },
      [this](const caf::error& error) {
        if (error == caf::sec::request_timeout && recorder_) {
          const auto waited =
            std::chrono::duration_cast<std::chrono::seconds>(clock().now() - concluded_);
          if (summary_ && options_.observer)
            send(options_.observer,
                 run_notice{"training is over; still writing to " + options_.output + " after "
                              + std::to_string(waited.count()) + " s",
                            notice_level::warning});
          await_disk();
          return;
        }
        recording_ = false;
        problem_ = explain(error);
        record_next();
      });
}

// Ends the output: writes the queued records, then the summary. So the summary can report a record
// that could not be written.
void progress::on_conclude(const conclude_run& x) {
  if (summary_)
    return;
  concluded_ = clock().now();
  if (!at_end_)
    summarize_tasks();
  summary_ = x.summary;
  summary_->tasks = std::move(at_end_->tasks);
  summary_->staleness = at_end_->staleness;
  summary_->updates_per_second = at_end_->updates_per_second;
  summary_->pacing = at_end_->pacing;
  if (!summary_->counted)
    summary_->staleness_mean = at_end_->staleness_mean;
  if (!x.updates.empty())
    for (std::size_t i = 0; auto& task : summary_->tasks)
      if (task.task.job == job_kind::ps && i < x.updates.size()) {
        task.steps = x.updates[i++];
        task.steps_per_second = static_cast<double>(task.steps) / std::max(summary_->seconds, 1e-9);
      }
  if (recorder_)
    summary_->output = options_.output;
  summary_->best = options_.best;
  timeline_due_ = true;
  record_next();
}

void progress::record_end() {
  if (recorder_ && ending_ == ending::none) {
    ending_ = ending::flushed;
    await_disk();
    return;
  }
  report_unwritten();
  if (recorder_ && ending_ == ending::flushed) {
    ending_ = ending::summary;
    send(recorder_, *summary_);
    await_disk();
    return;
  }
  ending_ = ending::over;
  send(options_.listener, run_over{*summary_});
}

void progress::report_unwritten() {
  summary_->best_kept = summary_->best && best_on_disk_ == summary_->best->step;
  if (problem_.empty() && queue_.left_out() > 0)
    problem_ = "the disk was too slow: " + std::to_string(queue_.left_out())
      + " reports and notices were left out";
  if (problem_.empty() || std::exchange(problem_reported_, true))
    return;
  summary_->unwritten = problem_;
  if (newest_weights_ && (!weights_on_disk_ || weights_on_disk_->first != *newest_weights_))
    summary_->weights_file = weights_on_disk_
      ? fmt::format("the weights of epoch {} (version {})", weights_on_disk_->second,
                    weights_on_disk_->first)
      : "no weights of this run";
  const auto text = "not everything was written: " + problem_;
  if (summary_->failure.empty())
    summary_->failure = text;
  else if (options_.observer)
    send(options_.observer, run_notice{text, notice_level::error});
}

} // namespace troupe
