#include "kernels/cuda/conversions.hpp"

#include "kernels/cuda/mixed_view.hpp"

#include <algorithm>

namespace troupe::cuda {

namespace {

struct conversion_kernel {
  converted all[most_conversions];
  element_loop loops[most_conversions];
  unsigned count;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (unsigned k = 0; k < count; ++k) {
      const auto& x = all[k];
      const mixed_view from{x.from, x.n, x.from_type};
      const mixed_target to{x.to, x.n, x.to_type};
      loops[k].visit(t,
                     [&](auto n, std::size_t i) { store_floats(to, i, load_floats(n, from, i)); });
    }
  }
};

} // namespace

void convert(stream where, std::span<const converted> all) {
  while (!all.empty()) {
    const auto now = all.first(std::min(all.size(), most_conversions));
    all = all.subspan(now.size());
    conversion_kernel kernel{};
    std::size_t blocks = 0;
    for (const auto& x : now) {
      auto& loop = kernel.loops[kernel.count];
      loop = {x.n, {{x.from, size_of(x.from_type)}, {x.to, size_of(x.to_type)}}};
      kernel.all[kernel.count++] = x;
      blocks = std::max(blocks, loop.blocks());
    }
    launch(where, "convert", {blocks}, kernel);
  }
}

} // namespace troupe::cuda
