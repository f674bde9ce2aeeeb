#include "actors/coordinator/coordinator.hpp"

#include "actors/checkpoint/checkpoint_schedule.hpp"

#include <algorithm>

// What the coordinator hears of tasks, and what it makes of their silence.

namespace troupe {

namespace {

/// An evaluation may take so many times as long as the longest so far.
constexpr int evaluation_patience = 4;

/// So many that are not on disk yet make shards wait.
constexpr std::size_t most_open_checkpoints = 2;

constexpr std::chrono::nanoseconds least_first_evaluation = std::chrono::seconds{5};

} // namespace

void coordinator::watch_tasks() {
  std::vector<task_name> at_work;
  std::vector<task_name> all;
  std::vector<task_name> idle;
  for (auto& x : view_.members) {
    all.push_back(x.task);
    (x.task.job == job_kind::ps && !uses_shards() ? idle : at_work).push_back(x.task);
  }
  tasks_.begin(all, idle, training_began_);
  stalls_.begin(at_work, in_step(), training_began_);
}

void coordinator::on_status(const proto::TaskStatus& x) {
  task_name task;
  if (!from_proto(x.task(), task))
    return;
  tasks_.hear(task, x, clock().now());
  stalls_.hear(task, x, clock().now());
}

void coordinator::hear(worker_state& worker, const proto::Progress& x) {
  worker.hear(x);
  tasks_.hear(worker.name(), x, clock().now());
}

void coordinator::lose_sight_of(const worker_state& worker, const std::string& how) {
  tasks_.end(worker.name(), how);
  stalls_.forget(worker.name());
}

void coordinator::judge_stalls() {
  if (auto text = stalls_.judge(own_wait(), clock().now()))
    notice(*text, notice_level::warning);
}

coordinator_wait coordinator::own_wait() const {
  using reason = coordinator_wait::reason;
  coordinator_wait result;
  const auto shards = view_.of(job_kind::ps);
  const auto workers = view_.of(job_kind::worker);
  if (phase_ == phase::training && settling_ > 0) {
    result.what = reason::fence;
    for (auto& x : shards)
      result.tasks.push_back(x.task);
  } else if (phase_ == phase::training && checkpoints_.size() >= most_open_checkpoints) {
    result.what = reason::checkpoint;
  } else if (!evaluating_.empty()
             && (phase_ == phase::snapshot || phase_ == phase::finishing
                 || step_evaluations_.size() >= checkpoint_schedule::most_open)) {
    result.what = reason::evaluation;
    result.patience = evaluation_patience * evaluation_time();
  } else if (phase_ == phase::training && std::ranges::any_of(workers_, [](auto& w) {
               return w.present && w.given < w.asked;
             })) {
    result.what = reason::leases;
    for (auto& x : workers_)
      if (x.present && !leases_->held_by(x.rank).empty())
        result.tasks.push_back(x.name());
  } else if (phase_ == phase::snapshot && snapshot_missing_ > 0) {
    result.what = reason::weights;
    for (std::size_t i = 0; i < readers_.size(); ++i)
      if (snapshot_.weights[i].data.empty())
        result.tasks.push_back(uses_shards() ? shards[i].task : workers[0].task);
  } else if (phase_ == phase::finishing && reports_missing_ == 0 && !checkpoints_.empty()) {
    result.what = reason::checkpoint;
  } else if (phase_ == phase::finishing) {
    result.what = reason::report;
    for (std::size_t i = 0; i < reports_.size(); ++i)
      if (reports_[i].decided_size() == 0)
        result.tasks.push_back(uses_shards() ? shards[i].task : workers[i].task);
  }
  return result;
}

// Before one was seen: to train so many samples on one worker would take longer. A run that goes on
// near the end of an epoch has hardly trained, hence the least.
std::chrono::nanoseconds coordinator::evaluation_time() const {
  if (longest_evaluation_.count() > 0)
    return longest_evaluation_;
  const auto tested = static_cast<double>(options_.data.evaluated()->size());
  const auto trained = static_cast<double>(options_.data.train->size());
  const std::chrono::nanoseconds estimate{
    static_cast<std::int64_t>(1e9 * evaluating_.begin()->second.seconds
                              * static_cast<double>(workers_.size()) * tested / trained)};
  return resumed_ ? std::max(estimate, least_first_evaluation) : estimate;
}

void coordinator::summarize_tasks() {
  summary_.tasks = tasks_.tasks_at_end(clock().now());
  summary_.staleness = tasks_.staleness();
  summary_.staleness_mean = tasks_.staleness_mean();
  summary_.updates_per_second = tasks_.updates_per_second(clock().now());
  summary_.pacing = tasks_.pacing();
}

} // namespace troupe
