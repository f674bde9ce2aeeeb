#include "actors/protocols/sync_ps/sync_policy.hpp"

#include <algorithm>

namespace troupe {

sync_policy::sync_policy(range where, std::vector<std::uint32_t> workers)
  : workers_(std::move(workers)), sum_(workers_.size(), where.size()) {}

std::optional<std::string> sync_policy::refusal(const proto::Commit& x,
                                                std::uint64_t version) const {
  if (std::ranges::find(workers_, x.id().worker()) == workers_.end())
    return "it is no worker of this view";
  if (x.step() != version)
    return "it commits step " + std::to_string(x.step()) + ", but the shard is at step "
      + std::to_string(version);
  return std::nullopt;
}

bool sync_policy::take(contribution x) {
  const auto rank = std::ranges::find(workers_, x.header.id().worker()) - workers_.begin();
  const auto samples = x.header.quarantine() ? 0 : x.header.samples();
  if (!sum_.add(static_cast<std::size_t>(rank), samples, std::move(x.gradient)))
    return false;
  parts_.push_back({std::move(x.header), {}});
  return true;
}

planned_update sync_policy::plan(std::span<const float>, std::uint64_t) {
  return {sum_.sum(), sum_.samples(), {}};
}

void sync_policy::made(std::span<const float>, std::span<const float>, const proto::Pushed&) {
  sum_.clear();
  parts_.clear();
}

} // namespace troupe
