#include "actors/coordinator/stall_judge.hpp"

#include "actors/payload_meter.hpp"

#include <algorithm>

// This file decides when the operator gets a notice, and finds the cause of the stall.
// stall_text.cpp writes the texts.

namespace troupe {

namespace {

using namespace std::chrono_literals;
using status = proto::TaskStatus;
using kind = stall_root::kind;

/// Shorter pauses do not count as a stall, because any machine may pause briefly.
constexpr std::chrono::nanoseconds least_quiet = 1s;

/// If nothing is heard from a task for this long, it counts as silent. Tasks report four times a
/// second.
constexpr std::chrono::nanoseconds most_silence = 800ms;

/// Time limits, in rounds. A round is the time of the steps that a worker makes between two waits
/// for other tasks. A task counts as stalled if it works for longer than `rounds_of_work`, or waits
/// for a message for longer than `rounds_of_waiting`.
constexpr int rounds_of_work = 4;
constexpr int rounds_of_waiting = 2;

/// Assumed duration of a step until each worker has made its first step.
constexpr std::chrono::nanoseconds unknown_step = 5s;

/// judge() is called more often than this. A longer gap means that this process itself was paused.
constexpr std::chrono::nanoseconds own_pause = 1s;

/// The speed of a transfer is measured over at least this time.
constexpr std::chrono::nanoseconds speed_over = 10s;

constexpr std::chrono::nanoseconds first_repetition = 10s;
constexpr std::chrono::nanoseconds longest_repetition = 5min;

std::chrono::nanoseconds from_seconds(double x) {
  return std::chrono::nanoseconds{static_cast<std::int64_t>(x * 1e9)};
}

bool works(kind x) {
  return x == kind::computing || x == kind::reading || x == kind::updating || x == kind::transfer;
}

} // namespace

// -- listening ----------------------------------------------------------------------------------

void stall_judge::begin(const std::vector<task_name>& tasks, const stall_conditions& how,
                        time_point now) {
  begun_ = true;
  how_ = how;
  now_ = moved_ = awake_ = learn_from_ = now;
  for (auto& task : tasks) {
    auto& x = tasks_[task];
    x.heard = x.moved = now;
    for (auto* y : {&x.with_all, &x.with_coordinator})
      y->moved = now - payload_meter::still_after;
  }
}

void stall_judge::traffic::see(std::uint64_t bytes_now, time_point moved_at, time_point now) {
  if (moved_at - moved >= payload_meter::still_after || bytes_now < bytes)
    from = next_from = {now, bytes_now};
  if (now - next_from.first >= speed_over)
    from = std::exchange(next_from, {now, bytes_now});
  moved = std::max(moved, moved_at);
  bytes = bytes_now;
}

void stall_judge::exchange(const task_name& task, std::uint64_t bytes, time_point now) {
  const auto i = tasks_.find(task);
  if (i == tasks_.end())
    return;
  auto& x = i->second.with_coordinator;
  // The link has carried payloads before this view began.
  if (!x.seen)
    x.from = x.next_from = {now, x.bytes = bytes};
  else if (bytes > x.bytes)
    x.see(bytes, now, now);
  x.seen = true;
}

void stall_judge::moved(time_point now) {
  moved_ = now;
}

void stall_judge::hear(const task_name& task, const proto::TaskStatus& x, time_point now) {
  auto i = tasks_.find(task);
  if (i == tasks_.end())
    return;
  auto& state = i->second;
  state.heard = now;
  state.waits_for.clear();
  for (auto& name : x.waits_for())
    if (task_name other; from_proto(name, other) && other != task)
      state.waits_for.push_back(other);
  if (x.steps() > state.status.steps()) {
    const auto when = now - from_seconds(x.step_seconds());
    if (state.moved >= learn_from_ && !paused_or_cut_off()) {
      // A longer step raises the estimate at once. Shorter steps lower it slowly. A pause between
      // two steps counts as part of a step.
      const auto steps = static_cast<std::int64_t>(
        std::min<std::uint64_t>(x.steps() - state.status.steps(), std::uint64_t{1} << 32));
      const duration each = std::max(when - state.moved, duration{1}) / steps;
      state.step = std::max(each, (state.step * 4 + each) / 5);
    }
    state.moved = when;
    moved_ = std::max(moved_, when);
  }
  state.status = x;
  if (x.has_payload_seconds())
    state.with_all.see(x.payload_bytes(), now - from_seconds(x.payload_seconds()), now);
}

// -- judging ------------------------------------------------------------------------------------

std::optional<std::string> stall_judge::judge(const coordinator_wait& own, time_point now) {
  if (!begun_)
    return std::nullopt;
  if (now - now_ > own_pause)
    awake_ = now;
  now_ = now;
  own_ = own;
  if (stall_ && moved_ > stall_->since) {
    auto text = resumed();
    if (paused_or_cut_off())
      learn_from_ = moved_;
    stall_.reset();
    roots_.clear();
    return text;
  }
  const auto quiet = now - std::max(moved_, awake_);
  if (quiet < least_quiet || (stall_ && now < stall_->next_notice))
    return std::nullopt;
  auto roots = find_roots();
  if (stall_)
    stall_->pause = std::min(stall_->pause * 2, longest_repetition);
  else if (quiet >= patience(roots))
    stall_ = stall{moved_, now, first_repetition};
  else
    return std::nullopt;
  stall_->next_notice = now + stall_->pause;
  // A busy task is never reported as the cause if another task is blocked.
  if (std::ranges::any_of(roots, [](auto& x) { return !works(x.what); }))
    std::erase_if(roots, [](auto& x) { return works(x.what); });
  roots_.assign(roots.begin(), roots.end());
  return explain();
}

stall_judge::duration stall_judge::longest_step() const {
  duration result{0};
  for (auto& [task, x] : tasks_)
    result = std::max(result, x.step);
  return result;
}

stall_judge::duration stall_judge::longest_round() const {
  return longest_step() * static_cast<std::int64_t>(how_.steps_between_waits);
}

// Returns a time limit: if nothing moves for longer, a run with these causes counts as stalled. A
// computation gets more time than a message. If step times are still unknown, a long one is
// assumed, but not for a silent task.
stall_judge::duration stall_judge::patience(const found& roots) const {
  const auto round = longest_round();
  const bool known = std::ranges::none_of(tasks_, [](auto& x) {
    return x.first.job == job_kind::worker && x.second.status.steps() == 0;
  });
  auto result = roots.empty() ? rounds_of_work * unknown_step : least_quiet;
  for (auto& root : roots) {
    const auto assumed = known || root.what == kind::silent ? round : std::max(round, unknown_step);
    if (root.what == kind::evaluating)
      result = std::max(result, own_.patience);
    else
      result = std::max(result, (works(root.what) ? rounds_of_work : rounds_of_waiting) * assumed);
  }
  return result;
}

// True if a stall has a cause other than busy tasks. For example, a task is paused, or a message is
// lost. The step in progress then takes unusually long, so it is not used for the estimates of step
// times. But if all causes are busy tasks, their steps are used.
bool stall_judge::paused_or_cut_off() const {
  return stall_ && std::ranges::any_of(roots_, [](auto& x) { return !works(x.what); });
}

bool stall_judge::moves(const traffic& x) const {
  return now_ - x.moved < payload_meter::still_after;
}

// A large payload on the link to the coordinator delays the reports of a task. The payload itself
// then shows that the task is not silent.
stall_judge::duration stall_judge::silence(const task_state& x) const {
  return now_ - std::max({x.heard, awake_, x.with_coordinator.moved});
}

bool stall_judge::silent(const task_state& x) const {
  return silence(x) > most_silence;
}

// -- who waits for whom -------------------------------------------------------------------------

stall_judge::found stall_judge::find_roots() const {
  found roots;
  std::set<task_name> seen;
  for (auto& [task, x] : tasks_)
    if (!silent(x))
      follow(task, seen, roots);
  follow(coordinator_task, seen, roots);
  // A host that hangs may stop several tasks. Report all of them, also the tasks that no other task
  // waits for.
  if (roots.empty() || std::ranges::any_of(roots, [](auto& x) { return x.what == kind::silent; }))
    for (auto& [task, x] : tasks_)
      if (silent(x))
        roots.insert({kind::silent, task, {}});
  // If several workers cannot reach one shard, report the shard instead of each link.
  std::map<task_name, std::size_t> blamed;
  for (auto& root : roots)
    if (root.what == kind::link && root.other.job == job_kind::ps)
      ++blamed[root.other];
  found result;
  for (auto& root : roots)
    if (root.what == kind::link && blamed[root.other] > 1)
      result.insert({kind::unresponsive, root.other, {}});
    else
      result.insert(root);
  return result;
}

void stall_judge::follow(const task_name& who, std::set<task_name>& seen, found& roots) const {
  if (!seen.insert(who).second)
    return;
  if (who == coordinator_task) {
    follow_coordinator(seen, roots);
    return;
  }
  const auto i = tasks_.find(who);
  if (i == tasks_.end())
    return;
  const auto& x = i->second;
  if (silent(x)) {
    roots.insert({kind::silent, who, {}});
    return;
  }
  switch (x.status.doing()) {
  case status::COMPUTING:
    roots.insert({kind::computing, who, {}});
    break;
  case status::WAITING_FOR_DATA:
    roots.insert({kind::reading, who, {}});
    break;
  case status::UPDATING:
    roots.insert({kind::updating, who, {}});
    break;
  case status::WAITING_FOR_READERS:
    roots.insert({kind::readers, who, {}});
    break;
  case status::WAITING_FOR_LEASE:
    follow(coordinator_task, seen, roots);
    break;
  case status::WAITING_FOR_WEIGHTS:
  case status::WAITING_FOR_UPDATE:
    // A worker that names no other task waits until its own synchronizer has applied its gradients.
    if (x.waits_for.empty())
      roots.insert({kind::updating, who, {}});
    [[fallthrough]];
  default:
    for (auto& other : x.waits_for)
      if (!link_is_dead(x, who, other))
        follow(other, seen, roots);
      else if (transfers(x, other))
        roots.insert({kind::transfer, std::min(who, other), std::max(who, other)});
      else if (who.job == other.job && who.job == job_kind::ps)
        roots.insert({kind::link, std::min(who, other), std::max(who, other)});
      else
        roots.insert(who.job == job_kind::ps || other.job == job_kind::worker
                       ? stall_root{kind::link, other, who}
                       : stall_root{kind::link, who, other});
  }
}

bool stall_judge::transfers(const task_state& who, const task_name& other) const {
  const auto i = tasks_.find(other);
  return moves(who.with_all) || (i != tasks_.end() && moves(i->second.with_all));
}

// True if `who` waits for a message that `other` has already sent. If two live tasks wait for each
// other, a message between them was lost. In a ring, all ranks wait in a circle, so compare the
// numbers of pieces sent and received. Shards wait for each other's part of a norm: a shard that is
// one update ahead has already sent its part.
bool stall_judge::link_is_dead(const task_state& who, const task_name& self,
                               const task_name& other) const {
  const auto i = tasks_.find(other);
  if (i == tasks_.end() || silent(i->second))
    return false;
  const auto& x = i->second;
  const bool mutual = std::ranges::find(x.waits_for, self) != x.waits_for.end();
  if (self.job == job_kind::ps && other.job == job_kind::ps)
    return mutual || x.status.steps() > who.status.steps();
  if (self.job == other.job)
    return x.status.pieces_sent() > who.status.pieces_received();
  const bool idle = x.status.doing() == status::WAITING_FOR_GRADIENTS && x.waits_for.empty();
  return idle || mutual;
}

void stall_judge::follow_coordinator(std::set<task_name>& seen, found& roots) const {
  switch (own_.what) {
  case coordinator_wait::reason::nothing:
    break;
  case coordinator_wait::reason::evaluation:
    roots.insert({kind::evaluating, coordinator_task, {}});
    break;
  case coordinator_wait::reason::checkpoint:
    roots.insert({kind::writing, coordinator_task, {}});
    break;
  case coordinator_wait::reason::leases:
    for (auto& task : own_.tasks)
      follow(task, seen, roots);
    break;
  case coordinator_wait::reason::fence:
    for (auto& task : own_.tasks)
      if (const auto i = tasks_.find(task); i != tasks_.end() && silent(i->second))
        roots.insert({kind::silent, task, {}});
    break;
  default:
    for (auto& task : own_.tasks) {
      const auto i = tasks_.find(task);
      if (i != tasks_.end() && silent(i->second))
        roots.insert({kind::silent, task, {}});
      else if (i != tasks_.end()
               && (moves(i->second.with_coordinator) || moves(i->second.with_all)))
        roots.insert({kind::transfer, task, coordinator_task});
      else
        roots.insert({kind::unresponsive, task, {}});
    }
  }
}

} // namespace troupe
