#include "actors/model/moving_average.hpp"

#include <algorithm>

namespace troupe {

void average_weights(const job_context& context, range where, std::uint64_t update,
                     std::span<const float> before, std::span<const float> weights,
                     std::span<float> average) {
  const auto share = static_cast<float>(1 - context.job.moving_average().decay());
  for (const auto& tensor : context.parameters().entries()) {
    const auto common = intersect(tensor.elements(), where);
    const auto begin = common.begin - where.begin;
    const auto end = begin + common.size();
    if (update > 1 && tensor.kind == parameter_kind::trainable)
      for (auto i = begin; i < end; ++i)
        average[i] = before[i] + share * (weights[i] - before[i]);
    else if (common.size() > 0)
      std::ranges::copy(weights.subspan(begin, common.size()), average.begin() + begin);
  }
}

} // namespace troupe
