#include "actors/status/activities.hpp"

#include <algorithm>

namespace troupe {

std::string_view activity_name(proto::TaskStatus::Doing x) {
  switch (x) {
  case proto::TaskStatus::COMPUTING:
    return "computing";
  case proto::TaskStatus::WAITING_FOR_LEASE:
    return "waiting for a lease";
  case proto::TaskStatus::WAITING_FOR_DATA:
    return "waiting for data";
  case proto::TaskStatus::WAITING_FOR_WEIGHTS:
    return "waiting for weights";
  case proto::TaskStatus::WAITING_FOR_UPDATE:
    return "waiting for updates";
  case proto::TaskStatus::WAITING_FOR_GRADIENTS:
    return "waiting for gradients";
  case proto::TaskStatus::UPDATING:
    return "updating";
  case proto::TaskStatus::WAITING_FOR_READERS:
    return "waiting for readers";
  case proto::TaskStatus::WAITING_FOR_NORM:
    return "waiting for norms";
  default:
    return "exchanging";
  }
}

void recent_activities::add(activity x) {
  x.begin = std::max(x.begin, end_);
  if (x.end - x.begin < shortest)
    return;
  end_ = x.end;
  if (ring_.size() < most)
    ring_.push_back(x);
  else
    ring_[count_ % most] = x;
  ++count_;
}

std::vector<activity> recent_activities::after(std::uint64_t seen) const {
  std::vector<activity> result;
  const auto kept = count_ - ring_.size();
  for (auto i = std::max(seen, kept); i < count_; ++i)
    result.push_back(ring_[i % most]);
  return result;
}

proto::Activities encode(std::span<const activity> x) {
  proto::Activities result;
  auto end = activity::time_point{};
  std::uint64_t step = 0;
  std::vector<task_name> tasks;
  for (const auto& each : x) {
    result.add_pauses(static_cast<std::uint64_t>((each.begin - end).count()));
    result.add_lengths(static_cast<std::uint64_t>((each.end - each.begin).count()));
    if (each.doing != proto::TaskStatus::DOING_UNSET)
      result.add_doing(each.doing);
    result.add_steps(each.step - step);
    end = each.end;
    step = each.step;
    if (!each.arrived) {
      result.add_arrived(0);
      continue;
    }
    auto at = std::ranges::find(tasks, *each.arrived);
    if (at == tasks.end()) {
      tasks.push_back(*each.arrived);
      *result.add_tasks() = to_proto(*each.arrived);
      at = tasks.end() - 1;
    }
    result.add_arrived(static_cast<std::uint32_t>(at - tasks.begin()) + 1);
  }
  return result;
}

std::vector<activity> decode(const proto::Activities& x, std::chrono::nanoseconds ahead) {
  std::vector<activity> result;
  auto end = activity::time_point{ahead};
  std::uint64_t step = 0;
  for (int i = 0; i < x.lengths_size(); ++i) {
    activity each;
    each.begin = end + std::chrono::nanoseconds{x.pauses(i)};
    each.end = end = each.begin + std::chrono::nanoseconds{x.lengths(i)};
    each.doing = x.doing_size() > 0 ? x.doing(i) : proto::TaskStatus::DOING_UNSET;
    each.step = step += x.steps(i);
    if (task_name from;
        x.arrived(i) > 0 && from_proto(x.tasks(static_cast<int>(x.arrived(i)) - 1), from))
      each.arrived = from;
    result.push_back(each);
  }
  return result;
}

} // namespace troupe
