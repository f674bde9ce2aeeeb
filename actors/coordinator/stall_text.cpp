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
  std::string advices;
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    result += (i == 0 ? "" : "; ") + explain(roots_[i]);
    const auto what_to_do = advice(roots_[i]);
    if (advices.find(what_to_do) == std::string::npos)
      advices += ". " + what_to_do;
  }
  return result + advices;
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

std::string stall_judge::advice(const stall_root& x) const {
  const std::string end = needs_all_ || x.task.job != job_kind::worker
    ? "; if you end the process, the run ends"
    : "; if you end the process, the others train its samples";
  switch (x.what) {
  case kind::silent:
    return "Look at its host and process; `kill -CONT PID` wakes a paused process" + end;
  case kind::link:
    return "Look at the network between their hosts (firewall, route, cable)";
  case kind::writing:
    return "Look at that disk or file system; checkpoint.every_steps may be too small for it";
  case kind::reading:
    return "Look at the disk or file system that its data come from" + end;
  default:
    return "Look at that process (load of its host, memory, a debugger)" + end;
  }
}

std::string stall_judge::resumed() const {
  return "training continues; nothing had moved for "
    + in_seconds(to_seconds(moved_ - stall_->since));
}

} // namespace troupe
