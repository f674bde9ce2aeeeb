#include "actors/coordinator/task_table.hpp"

#include "actors/seconds.hpp"
#include "actors/status/activity_board.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

/// The length of a window in which rates are measured. A rate covers one to two windows.
constexpr std::chrono::seconds rate_window_length{2};

/// A shard is hot if it has sent and received at least `hot_bytes`, and more than `hot_multiple`
/// times the mean of the other shards.
constexpr double hot_multiple = 2;
constexpr std::uint64_t hot_bytes = std::uint64_t{16} << 20;

task_status of_worker(const proto::Progress& x) {
  task_status result;
  result.steps = x.applied();
  result.samples = x.samples();
  result.staleness_mean = static_cast<double>(x.staleness_sum())
    / static_cast<double>(std::max<std::uint64_t>(x.applied(), 1));
  result.computing = x.computing();
  result.exchanging_while_computing = x.exchanging_while_computing();
  result.waiting_for_lease = x.waiting_for_lease();
  result.waiting_for_data = x.waiting_for_data();
  result.waiting_for_weights = x.waiting_for_weights();
  result.waiting_for_update = x.waiting_for_update();
  return result;
}

} // namespace

void task_table::begin(const std::vector<task_name>& tasks, const std::vector<task_name>& idle,
                       time_point now) {
  began_ = now;
  for (auto& task : tasks) {
    auto& x = entries_[task];
    x.heard = x.older.begin = x.newer.begin = now;
    x.idle = std::ranges::find(idle, task) != idle.end();
    shards_ = shards_ || (task.job == job_kind::ps && !x.idle);
  }
}

void task_table::hear(const task_name& task, const proto::TaskStatus& x, time_point now) {
  auto i = entries_.find(task);
  if (i == entries_.end())
    return;
  auto& entry = i->second;
  entry.status = x;
  entry.heard = now;
  entry.move_window(now);
}

void task_table::hear(const task_name& task, const proto::Progress& x, time_point now) {
  auto i = entries_.find(task);
  if (i == entries_.end() || x.produced() < i->second.progress.produced()
      || x.applied() < i->second.progress.applied())
    return;
  i->second.progress = x;
  i->second.move_window(now);
}

void task_table::entry::move_window(time_point now) {
  if (now - newer.begin < rate_window_length)
    return;
  older = newer;
  newer = {now, status.steps(), progress.samples(), status.bytes_sent(), status.bytes_received()};
}

void task_table::end(const task_name& task, std::string how) {
  if (auto i = entries_.find(task); i != entries_.end())
    i->second.ended = std::move(how);
}

std::vector<task_status> task_table::tasks(time_point now) const {
  std::vector<task_status> result;
  for (auto& [task, x] : entries_) {
    auto status = of_worker(x.progress);
    status.task = task;
    if (task.job == job_kind::ps)
      status.steps = x.status.steps();
    if (x.idle) {
      status.activity = "is not needed";
    } else if (!x.ended.empty()) {
      status.activity = x.ended;
    } else {
      status.activity = describe(x.status);
      status.activity_seconds = x.status.seconds() + to_seconds(now - x.heard);
      const auto rate = [now, since = x.older.begin](std::uint64_t count, std::uint64_t before) {
        return now > since && count > before
          ? static_cast<double>(count - before) / to_seconds(now - since)
          : 0;
      };
      status.steps_per_second = rate(x.status.steps(), x.older.steps);
      status.samples_per_second = rate(status.samples, x.older.samples);
      status.bytes_sent_per_second = rate(x.status.bytes_sent(), x.older.bytes_sent);
      status.bytes_received_per_second = rate(x.status.bytes_received(), x.older.bytes_received);
    }
    result.push_back(std::move(status));
  }
  return result;
}

std::vector<task_status> task_table::tasks_at_end(time_point now) const {
  auto result = tasks(now);
  const double spent = std::max(to_seconds(now - began_), 1e-9);
  for (auto& x : result) {
    const auto& status = entries_.at(x.task).status;
    x.steps_per_second = static_cast<double>(x.steps) / spent;
    x.samples_per_second = static_cast<double>(x.samples) / spent;
    x.bytes_sent_per_second = static_cast<double>(status.bytes_sent()) / spent;
    x.bytes_received_per_second = static_cast<double>(status.bytes_received()) / spent;
  }
  return result;
}

staleness_counts task_table::staleness() const {
  staleness_counts result{};
  for (auto& [task, x] : entries_)
    for (int i = 0; i < std::min(x.progress.staleness_size(), static_cast<int>(result.size())); ++i)
      result[static_cast<std::size_t>(i)] += x.progress.staleness(i);
  return result;
}

double task_table::staleness_mean() const {
  std::uint64_t sum = 0;
  std::uint64_t gradients = 0;
  for (auto& [task, x] : entries_) {
    sum += x.progress.staleness_sum();
    gradients += x.progress.applied();
  }
  return static_cast<double>(sum) / static_cast<double>(std::max<std::uint64_t>(gradients, 1));
}

std::optional<double> task_table::gradient_norm() const {
  double sum = 0;
  std::size_t known = 0;
  for (auto& [task, x] : entries_)
    if (x.progress.has_gradient_norm()) {
      sum += x.progress.gradient_norm();
      ++known;
    }
  return known > 0 ? std::optional{sum / static_cast<double>(known)} : std::nullopt;
}

std::uint64_t task_table::updates() const {
  auto result = std::numeric_limits<std::uint64_t>::max();
  for (auto& [task, x] : entries_)
    if (task.job == (shards_ ? job_kind::ps : job_kind::worker))
      result = std::min(result, x.status.steps());
  return entries_.empty() ? 0 : result;
}

double task_table::updates_per_second(time_point now) const {
  return static_cast<double>(updates()) / std::max(to_seconds(now - began_), 1e-9);
}

std::uint64_t task_table::quarantined() const {
  std::uint64_t result = 0;
  for (auto& [task, x] : entries_)
    result += x.progress.quarantined();
  return result;
}

std::optional<task_table::hot_shard> task_table::hottest_shard(time_point now) const {
  std::uint64_t sum = 0;
  std::uint64_t most = 0;
  std::size_t shards = 0;
  task_name hottest;
  for (auto& [task, x] : entries_) {
    if (task.job != job_kind::ps || x.idle)
      continue;
    const auto bytes = x.status.bytes_sent() + x.status.bytes_received();
    ++shards;
    sum += bytes;
    if (bytes > most) {
      most = bytes;
      hottest = task;
    }
  }
  if (most < hot_bytes || shards < 2)
    return std::nullopt;
  const auto others = static_cast<double>(sum - most) / static_cast<double>(shards - 1);
  if (static_cast<double>(most) <= hot_multiple * others)
    return std::nullopt;
  return hot_shard{hottest, static_cast<double>(most) / others,
                   static_cast<double>(most) / std::max(to_seconds(now - began_), 1e-9)};
}

std::optional<pacing_status> task_table::pacing() const {
  std::optional<pacing_status> result;
  std::uint64_t limited = 0;
  for (auto& [task, x] : entries_) {
    limited += x.progress.limited();
    if (x.status.has_pacing())
      result = {x.status.pacing().staleness(), x.status.pacing().norm(),
                x.status.pacing().damping(),   x.status.pacing().overshoots(),
                x.status.pacing().halvings(),  0};
  }
  if (result)
    result->limited = limited;
  return result;
}

} // namespace troupe
