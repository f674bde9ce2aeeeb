#include "actors/protocols/async_ps/worker_moments.hpp"

#include <algorithm>

namespace troupe {

worker_moments::moment worker_moments::next(std::uint32_t worker, std::uint64_t incarnation,
                                            std::uint64_t chain) {
  auto [i, fresh] = entries_.try_emplace({worker, incarnation, chain});
  auto& x = i->second;
  if (fresh) {
    x.values = restored_;
    x.values.resize(elements_, 0.0F);
    x.updates = restored_updates_;
  }
  return {x.values, ++x.updates};
}

void worker_moments::drop(std::uint32_t worker, std::uint64_t incarnation) {
  std::erase_if(entries_, [&](auto& x) {
    return std::get<0>(x.first) == worker && std::get<1>(x.first) == incarnation;
  });
}

payload worker_moments::mean(const std::function<double(std::uint64_t updates)>& weight) const {
  auto result = payload::floats(elements_);
  const auto out = result.as_mutable_floats();
  if (entries_.empty()) {
    std::ranges::fill(out, 0.0F);
    const double factor = weight(restored_updates_);
    std::ranges::transform(restored_, out.begin(),
                           [&](float x) { return static_cast<float>(factor * x); });
    return result;
  }
  std::vector<double> weights;
  for (const auto& [id, x] : entries_)
    weights.push_back(weight(x.updates) / static_cast<double>(entries_.size()));
  for (std::size_t i = 0; i < elements_; ++i) {
    double sum = 0;
    auto part = weights.begin();
    for (const auto& [id, x] : entries_)
      sum += *part++ * x.values[i];
    out[i] = static_cast<float>(sum);
  }
  return result;
}

void worker_moments::restore(std::span<const float> values, std::uint64_t updates) {
  restored_.assign(values.begin(), values.end());
  restored_updates_ = updates;
}

} // namespace troupe
