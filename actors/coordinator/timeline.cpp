#include "actors/coordinator/timeline.hpp"

#include "actors/seconds.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::seconds clock_window{16};

/// Limits of the number of activities: of each kind, for one task and for all tasks.
constexpr std::size_t most_of_task = 16384;
constexpr std::size_t most_of_all = 262'144;
constexpr std::size_t most_marks = 256;

/// More hosts than this are no cluster, but the invention of a peer.
constexpr std::size_t most_clocks = 4096;

/// Appends an activity that has not ended.
void append(std::vector<activity>& to, const std::optional<activity>& x) {
  if (!x)
    return;
  auto last = *x;
  if (!to.empty())
    last.begin = std::max(last.begin, to.back().end);
  if (last.begin < last.end)
    to.push_back(last);
}

} // namespace

void clock_difference::add(std::uint64_t sent, time_point now) {
  const auto x = now.time_since_epoch() - std::chrono::nanoseconds{sent};
  if (newer_ != bound::max() && now - newer_since_ >= clock_window)
    older_ = std::exchange(newer_, bound::max());
  if (newer_ == bound::max())
    newer_since_ = now;
  newer_ = std::min(newer_, x);
}

std::chrono::nanoseconds clock_difference::value() const {
  return older_ ? std::min(*older_, newer_) : newer_;
}

std::chrono::nanoseconds timeline::ahead_of(const task_name& task, const proto::TaskStatus& x,
                                            time_point now) {
  if (x.host() == host_ && host_ != 0)
    return {};
  if (clocks_.size() >= most_clocks)
    clocks_.clear();
  auto& clock = clocks_[{x.host(), x.host() == 0 ? std::optional{task} : std::nullopt}];
  clock.add(x.clock(), now);
  return clock.value();
}

void timeline::hear(const task_name& task, const proto::TaskStatus& x, time_point now) {
  if (x.clock() == 0) // from a version that reports no activities
    return;
  const auto ahead = ahead_of(task, x, now);
  auto& entry = entries_[task];
  add(entry.done, decode(x.done(), ahead));
  add(entry.exchanged, decode(x.exchanged(), ahead));
  entry.current.reset();
  entry.exchange.reset();
  if (x.doing() == proto::TaskStatus::DOING_UNSET)
    return;
  const auto sent = time_point{ahead + std::chrono::nanoseconds{x.clock()}};
  const auto lasts = std::chrono::duration_cast<std::chrono::nanoseconds>(
    std::chrono::duration<double>{x.seconds()});
  entry.current = {.begin = sent - lasts, .end = sent, .doing = x.doing(), .step = x.step_before()};
  if (x.exchanging_since() > 0)
    entry.exchange = {.begin = time_point{ahead + std::chrono::nanoseconds{x.exchanging_since()}},
                      .end = sent,
                      .step = x.step_before()};
}

// The estimate of a clock changes a little, so the first activities of a report may begin before
// the end of the activities in the report before.
void timeline::add(std::deque<activity>& to, const std::vector<activity>& news) const {
  const auto most = std::clamp(most_of_all / std::max<std::size_t>(entries_.size(), 1),
                               std::size_t{1024}, most_of_task);
  for (auto x : news) {
    if (!to.empty())
      x.begin = std::max(x.begin, to.back().end);
    if (x.begin < x.end)
      to.push_back(x);
  }
  while (to.size() > most)
    to.pop_front();
}

void timeline::mark(std::string text, time_point now) {
  marks_.push_back({now, std::move(text)});
  if (marks_.size() > most_marks)
    marks_.pop_front();
}

run_timeline timeline::newest() const {
  run_timeline result;
  for (const auto& [task, x] : entries_) {
    task_timeline of{
      task, {x.done.begin(), x.done.end()}, {x.exchanged.begin(), x.exchanged.end()}};
    append(of.done, x.current);
    append(of.exchanged, x.exchange);
    result.tasks.push_back(std::move(of));
  }
  result.marks = {marks_.begin(), marks_.end()};
  return result;
}

} // namespace troupe
