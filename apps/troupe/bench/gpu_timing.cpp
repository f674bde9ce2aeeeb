#include "apps/troupe/bench/gpu_timing.hpp"

#include <algorithm>

namespace troupe::bench {

double seconds_of(cuda::device& gpu, const std::function<void()>& f) {
  const auto begin = gpu.make_time_mark();
  const auto end = gpu.make_time_mark();
  begin->record(gpu.main_stream());
  f();
  end->record(gpu.main_stream());
  return end->seconds_since(*begin);
}

std::vector<statistics> measure_on(cuda::device& gpu, const gpu_rounds& how, std::size_t warm_up,
                                   std::span<const gpu_work_turn> works) {
  struct progress {
    std::size_t next = 0;
    std::size_t turns = 1;
    std::vector<double> seconds;
  };
  std::vector<progress> all(works.size());
  const auto run = [&](std::size_t i, std::size_t turns) {
    return seconds_of(gpu, [&] {
      for (std::size_t k = 0; k < turns; ++k)
        works[i](all[i].next++);
    });
  };
  for (std::size_t i = 0; i < works.size(); ++i) {
    run(i, std::max<std::size_t>(warm_up, 1));
    const auto one = run(i, 3) / 3;
    const auto turns = std::clamp(how.seconds / std::max(one, 1e-9), 1.0, 1e9);
    all[i].turns = std::min(static_cast<std::size_t>(turns), how.turns);
  }
  for (std::uint32_t r = 0; r < how.rounds; ++r)
    for (std::size_t i = 0; i < works.size(); ++i)
      all[i].seconds.push_back(run(i, all[i].turns) / static_cast<double>(all[i].turns));
  std::vector<statistics> result;
  for (auto& x : all)
    result.emplace_back(std::move(x.seconds));
  return result;
}

} // namespace troupe::bench
