#include "actors/coordinator/stall_judge.hpp"
#include "actors/seconds.hpp"
#include "actors/status/activity_board.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

// The texts that describe a stall to the operator.

namespace troupe {

namespace {

using kind = stall_root::kind;

/// Tasks fall silent at the same time if their last reports are this close together. A task reports
/// four times a second, and a report may be late.
constexpr std::chrono::seconds same_time{1};

/// Formats a time, such as "0.02 s", "1.4 s", "75 s".
std::string in_seconds(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(),
                x < 0.0995    ? "%.2g s"
                  : x < 99.95 ? "%.1f s"
                              : "%.0f s",
                std::max(x, 0.001));
  return text.data();
}

/// Puts the verb into the plural: "waits for a lease" becomes "wait for a lease".
std::string plural(std::string sentence) {
  const auto end = std::min(sentence.find(' '), sentence.size());
  if (end > 0 && sentence[end - 1] == 's')
    sentence.erase(end - 1, 1);
  return sentence;
}

std::string waiting_of_coordinator(const coordinator_wait& x) {
  using reason = coordinator_wait::reason;
  const auto who = enumerate(x.tasks);
  switch (x.what) {
  case reason::leases:
    return "the coordinator waits for the last samples of the epoch, from " + who;
  case reason::weights:
    return "the coordinator waits for the weights of " + who;
  case reason::fence:
    return "the coordinator waits for " + who + " to settle the gradients of a lost worker";
  case reason::report:
    return "the coordinator waits for the final count of " + who;
  case reason::evaluation:
    return "the coordinator waits for an evaluation of the weights";
  default:
    return "";
  }
}

/// What the operator can do about a cause; and true if the text must also say what happens if the
/// operator ends the process.
std::pair<std::string, bool> advice(kind what) {
  switch (what) {
  case kind::silent:
    return {"Look at its host and process; `kill -CONT PID` wakes a paused process", true};
  case kind::link:
    return {"Look at the network between their hosts (firewall, route, cable)", false};
  case kind::transfer:
    return {"It takes long because the network is slow or busy. The run waits until it is complete",
            false};
  case kind::writing:
    return {"Look at that disk or file system; checkpoint.every_steps may be too small for it",
            false};
  case kind::reading:
    return {"Look at the disk or file system that its data come from", true};
  default:
    return {"Look at that process (load of its host, memory, a debugger)", true};
  }
}

} // namespace

double stall_judge::seconds_since(time_point x) const {
  return to_seconds(now_ - x);
}

std::string stall_judge::explain() const {
  const auto step = longest_step();
  auto result = "nothing has moved for " + in_seconds(seconds_since(std::max(moved_, awake_)));
  if (step > duration{0})
    result += " (a step takes " + in_seconds(to_seconds(step)) + ")";
  if (const auto all = chain(); !all.empty())
    result += ": " + all;
  result += ". Root: ";
  if (roots_.empty())
    return result + "unknown; no task reports that it waits for another";
  return result + (all_silent() ? explain_silence_of_all() : explain_roots());
}

// Lists the causes, and then what to do. Causes with the same advice are grouped.
std::string stall_judge::explain_roots() const {
  std::string result;
  std::vector<std::pair<std::string, std::vector<task_name>>> advices;
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    result += (i == 0 ? "" : "; ") + explain(roots_[i]);
    const auto [text, may_end] = advice(roots_[i].what);
    auto found = std::ranges::find(advices, text, [](auto& x) { return x.first; });
    if (found == advices.end())
      found = advices.insert(found, {text, {}});
    if (may_end)
      found->second.push_back(roots_[i].task);
  }
  for (const auto& [text, tasks] : advices)
    result += ". " + text + ends_of(tasks);
  return result;
}

// True if all tasks fell silent at about the same time, although they do not all run on this host.
bool stall_judge::all_silent() const {
  if (!how_.network || tasks_.size() < 2)
    return false;
  duration least = duration::max();
  duration most{0};
  for (auto& [task, x] : tasks_) {
    if (!silent(x))
      return false;
    least = std::min(least, silence(x));
    most = std::max(most, silence(x));
  }
  return most - least < same_time;
}

std::string stall_judge::explain_silence_of_all() const {
  std::vector<task_name> all;
  duration longest{0};
  for (auto& [task, x] : tasks_) {
    all.push_back(task);
    longest = std::max(longest, silence(x));
  }
  return "nothing heard from any task (" + enumerate(all) + ") for "
    + in_seconds(to_seconds(longest))
    + ". All fell silent at the same time, so the likely cause is the network of the coordinator's "
      "host. Look at its network (cable, interface, firewall) first, and then at the hosts and "
      "processes of the tasks";
}

// Lists which tasks wait for which other tasks. Tasks with the same wait are grouped.
std::string stall_judge::chain() const {
  struct group {
    std::vector<task_name> tasks;
    double seconds = 0;
  };
  std::map<std::string, group> groups;
  bool leases = false;
  for (auto& [task, x] : tasks_) {
    const auto doing = x.status.doing();
    const bool waits = !x.waits_for.empty() || doing == proto::TaskStatus::WAITING_FOR_LEASE;
    if (silent(x) || !waits)
      continue;
    leases = leases || doing == proto::TaskStatus::WAITING_FOR_LEASE;
    auto& g = groups[describe(x.status)];
    g.tasks.push_back(task);
    g.seconds = std::max(g.seconds, x.status.seconds() + seconds_since(x.heard));
  }
  std::string result;
  for (auto& [text, g] : groups)
    result += (result.empty() ? "" : ", ") + enumerate(g.tasks) + ' '
      + (g.tasks.size() > 1 ? plural(text) : text) + " (" + in_seconds(g.seconds) + ')';
  // If the coordinator waits until leases are trained, the text mentions this wait only if a task
  // waits for a new lease. It mentions all other waits of the coordinator.
  const bool waited_for = own_.what != coordinator_wait::reason::leases || leases;
  if (const auto own = waiting_of_coordinator(own_); !own.empty() && waited_for)
    result += (result.empty() ? "" : ", ") + own;
  return result;
}

// The speed of a transfer. Empty if it is not known. A task may also exchange data with others, and
// a sender also counts bytes that its system has not sent yet. So the lowest speed is the best
// estimate.
std::string stall_judge::speed_of(const stall_root& x) const {
  double speed = 0;
  for (const auto& task : {x.task, x.other}) {
    const auto i = tasks_.find(task);
    if (i == tasks_.end())
      continue;
    for (const auto* y : {&i->second.with_all, &i->second.with_coordinator}) {
      const auto bytes = static_cast<double>(y->bytes - y->from.second);
      if (!moves(*y) || bytes <= 0 || now_ <= y->from.first)
        continue;
      const auto here = bytes / seconds_since(y->from.first);
      speed = speed > 0 ? std::min(speed, here) : here;
    }
  }
  if (speed <= 0)
    return "";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), speed < 1e8 ? ", %.2g MB/s" : ", %.0f MB/s", speed / 1e6);
  return text.data();
}

std::string stall_judge::explain(const stall_root& x) const {
  const auto name = to_string(x.task);
  const auto i = tasks_.find(x.task);
  const auto busy = i == tasks_.end()
    ? ""
    : in_seconds(i->second.status.seconds() + seconds_since(i->second.heard));
  switch (x.what) {
  case kind::silent:
    return name + " is paused, hangs or is cut off: nothing heard from it for "
      + in_seconds(i == tasks_.end() ? 0 : to_seconds(silence(i->second)));
  case kind::link:
    return "the connection between " + name + " and " + to_string(x.other)
      + " is dead: both are alive, but messages do not get through";
  case kind::transfer:
    return "a transfer between " + name + " and " + to_string(x.other) + " is in progress"
      + speed_of(x);
  case kind::unresponsive:
    return name + " is alive, but does not answer";
  case kind::readers:
    return name + " has had no room for a new version of its weights for " + busy
      + ": readers hold all of them";
  case kind::computing:
    return name + " has been computing one gradient for " + busy;
  case kind::reading:
    return name + " has been waiting for its own input for " + busy;
  case kind::updating:
    return name
      + (i != tasks_.end() && i->second.status.doing() == proto::TaskStatus::WAITING_FOR_WEIGHTS
           ? " has been waiting for its own synchronizer for "
           : " has been applying one update for ")
      + busy;
  case kind::writing:
    return "checkpoints do not reach the disk of the output directory";
  default:
    return "the coordinator's evaluation of the weights does not end";
  }
}

// What happens if the process of a task ends.
std::string stall_judge::end_of(const task_name& task) const {
  if (task.job == job_kind::worker && !how_.needs_all)
    return "the others train its samples";
  if (how_.elastic && task != coordinator_task)
    return "the run continues from its newest checkpoint";
  return "the run ends";
}

std::string stall_judge::ends_of(const std::vector<task_name>& tasks) const {
  std::map<std::string, std::vector<task_name>> ends;
  for (const auto& task : tasks)
    ends[end_of(task)].push_back(task);
  if (ends.size() == 1)
    return "; if you end the process, " + ends.begin()->first;
  std::string result;
  for (const auto& [end, of] : ends)
    result += "; if you end the process of " + enumerate(of) + ", " + end;
  return result;
}

std::string stall_judge::resumed() const {
  return "training continues; nothing had moved for "
    + in_seconds(to_seconds(moved_ - stall_->since));
}

} // namespace troupe
