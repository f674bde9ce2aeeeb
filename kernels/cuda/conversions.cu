#include "kernels/cuda/conversions.hpp"

#include "kernels/cuda/mixed_view.hpp"

#include <algorithm>

namespace troupe::cuda {

namespace {

struct conversion_kernel {
  converted all[most_conversions];
  unsigned count;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (unsigned k = 0; k < count; ++k) {
      const auto& x = all[k];
      const mixed_view from{x.from, x.n, x.from_type};
      const mixed_target to{x.to, x.n, x.to_type};
      for (auto i = t.first(); i < x.n; i += t.stride())
        to.store(i, from.load(i));
    }
  }
};

} // namespace

void convert(stream where, std::span<const converted> all) {
  while (!all.empty()) {
    const auto now = all.first(std::min(all.size(), most_conversions));
    all = all.subspan(now.size());
    conversion_kernel kernel{};
    std::size_t most = 0;
    for (const auto& x : now) {
      kernel.all[kernel.count++] = x;
      most = std::max(most, x.n);
    }
    launch(where, "convert", {blocks_for(most)}, kernel);
  }
}

} // namespace troupe::cuda
