#include "actors/checkpoint/checkpoint_assembly.hpp"

#include <algorithm>

namespace troupe {

proto::Decided assembled_checkpoint::least(std::uint32_t worker, std::uint64_t incarnation) const {
  std::optional<proto::Decided> result;
  for (auto& part : marks) {
    const auto i = std::ranges::find_if(
      part, [&](auto& x) { return x.worker() == worker && x.incarnation() == incarnation; });
    if (i == part.end() && one_worker_each)
      continue;
    if (i == part.end())
      return {};
    if (!result || i->sequence() < result->sequence())
      result = *i;
  }
  return result.value_or(proto::Decided{});
}

std::uint64_t assembled_checkpoint::newest_lease() const noexcept {
  std::uint64_t result = 0;
  for (auto& part : marks)
    for (auto& x : part)
      result = std::max<std::uint64_t>(result, x.lease());
  return result;
}

checkpoint_assembly::checkpoint_assembly(std::vector<range> parts, std::size_t slots,
                                         bool one_worker_each)
  : parts_(std::move(parts)), slots_(slots), one_worker_each_(one_worker_each) {}

checkpoint_assembly::outcome checkpoint_assembly::add(const proto::CheckpointPart& header,
                                                      const payload& data) {
  if (header.part() >= parts_.size() || header.slot() >= slots_
      || data.size() != parts_[header.part()].size() * sizeof(float))
    return outcome::misfit;
  auto i = versions_.find(header.version());
  if (i == versions_.end()) {
    if (header.version() <= settled_)
      return outcome::settled;
    state fresh;
    fresh.slots.assign(slots_, std::vector<std::optional<payload>>(parts_.size()));
    fresh.marks.resize(parts_.size());
    fresh.missing = slots_ * parts_.size();
    i = versions_.emplace(header.version(), std::move(fresh)).first;
  }
  auto& x = i->second;
  auto& place = x.slots[header.slot()][header.part()];
  if (place)
    return outcome::repeated;
  place = data;
  x.marks[header.part()].assign(header.mark().begin(), header.mark().end());
  return --x.missing == 0 ? outcome::complete : outcome::taken;
}

assembled_checkpoint checkpoint_assembly::take(std::uint64_t version) {
  auto& x = versions_.at(version);
  assembled_checkpoint result;
  result.version = version;
  result.marks = std::move(x.marks);
  result.one_worker_each = one_worker_each_;
  for (auto& slot : x.slots) {
    auto& parts = result.slots.emplace_back();
    for (auto& part : slot)
      parts.push_back(std::move(*part));
  }
  drop(version);
  return result;
}

std::vector<std::uint64_t> checkpoint_assembly::open() const {
  std::vector<std::uint64_t> result;
  for (auto& [version, x] : versions_)
    result.push_back(version);
  return result;
}

void checkpoint_assembly::drop(std::uint64_t version) {
  versions_.erase(version);
  settled_ = std::max(settled_, version);
}

} // namespace troupe
