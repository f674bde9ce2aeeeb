#include "kernels/optimizers/gradient_norm.hpp"

#include "kernels/cpu/reduce.hpp"

#include <limits>

namespace troupe {

namespace {

std::span<const float> part_of(const layout_entry& tensor, range where,
                               std::span<const float> values) {
  const auto common = intersect(tensor.elements(), where);
  return common.empty() ? std::span<const float>{}
                        : values.subspan(common.begin - where.begin, common.size());
}

} // namespace

double squared_norm(const layout& parameters, range where, std::span<const float> values) {
  double result = 0;
  for (const auto& tensor : parameters.entries()) {
    const auto part = part_of(tensor, where, values);
    if (tensor.kind == parameter_kind::trainable)
      result += sum_of_squares(part);
    else if (tensor.kind == parameter_kind::state && !all_finite(part))
      return std::numeric_limits<double>::quiet_NaN();
  }
  return result;
}

std::string first_not_finite(const layout& parameters, range where, std::span<const float> values) {
  for (const auto& tensor : parameters.entries())
    if (!all_finite(part_of(tensor, where, values)))
      return tensor.name;
  return {};
}

} // namespace troupe
