#include "actors/protocols/async_ps/worker_moments.hpp"

#include <algorithm>
#include <ranges>

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

payload
worker_moments::mean(const std::function<double(std::uint64_t updates)>& weight) const {
  auto result = payload::floats(elements_);
  const auto out = result.as_mutable_floats();
  if (entries_.empty()) {
    std::ranges::fill(out, 0.0F);
    std::ranges::copy(restored_, out.begin());
    return result;
  }
  std::vector<double> sums(elements_, 0.0);
  for (const auto& [id, x] : entries_) {
    const double part = weight(x.updates) / static_cast<double>(entries_.size());
    for (std::size_t i = 0; i < elements_; ++i)
      sums[i] += part * x.values[i];
  }
  std::ranges::copy(sums | std::views::transform([](double x) { return static_cast<float>(x); }),
                    out.begin());
  return result;
}

void worker_moments::restore(std::span<const float> values, std::uint64_t updates) {
  restored_.assign(values.begin(), values.end());
  restored_updates_ = updates;
}

} // namespace troupe
