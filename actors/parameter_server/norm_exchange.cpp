#include "actors/parameter_server/norm_exchange.hpp"

#include <algorithm>

namespace troupe {

bool norm_exchange::add(std::uint64_t now, std::uint64_t step, std::size_t shard, double squares) {
  if (shard >= shards_ || step > now + 1)
    return false;
  if (step < now)
    return true;
  auto& parts = steps_[step];
  parts.resize(shards_);
  if (!parts[shard])
    parts[shard] = squares;
  return true;
}

bool norm_exchange::has(std::uint64_t step, std::size_t shard) const {
  const auto i = steps_.find(step);
  return i != steps_.end() && i->second[shard];
}

bool norm_exchange::complete(std::uint64_t step) const {
  const auto i = steps_.find(step);
  return i != steps_.end() && std::ranges::all_of(i->second, [](auto& x) { return x.has_value(); });
}

double norm_exchange::sum(std::uint64_t step) const {
  double result = 0;
  for (auto& part : steps_.at(step))
    result += part.value();
  return result;
}

void norm_exchange::forget(std::uint64_t step) {
  steps_.erase(steps_.begin(), steps_.upper_bound(step));
}

} // namespace troupe
