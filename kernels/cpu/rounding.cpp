#include "kernels/cpu/rounding.hpp"

#include "kernels/cpu/vectorize.hpp"
#include "kernels/narrow_float.hpp"

#include <algorithm>

namespace troupe {

void round_to_bfloat16(const layout& parameters, range where, std::span<float> values) {
  round_to_bfloat16(parameters, where, values, values);
}

void round_to_bfloat16(const layout& parameters, range where, std::span<const float> x,
                       std::span<float> out) {
  for (const auto& tensor : parameters.entries()) {
    const auto part = intersect(tensor.elements(), where);
    if (part.empty())
      continue;
    const auto* from = x.data() + (part.begin - where.begin);
    auto* to = out.data() + (part.begin - where.begin);
    if (tensor.kind != parameter_kind::trainable) {
      if (from != to)
        std::copy_n(from, part.size(), to);
      continue;
    }
    TROUPE_INDEPENDENT
    for (std::size_t i = 0; i < part.size(); ++i)
      to[i] = widened(rounded_to<bfloat16>(from[i]));
  }
}

} // namespace troupe
