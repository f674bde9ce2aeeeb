#include "kernels/optimizers/gradient_norm.hpp"

#include "kernels/cpu/reduce.hpp"

#include <limits>

namespace troupe {

namespace {

/// Calls f(tensor, elements) for each tensor and each part that have common elements, in order,
/// until f returns false.
template <class F>
void for_each_part(const layout& parameters, range where, std::span<const float> values,
                   const range_list& parts, F f) {
  auto next = parts.begin();
  for (const auto& tensor : parameters.entries()) {
    const auto whole = intersect(tensor.elements(), where);
    if (whole.empty())
      continue;
    const range here{whole.begin - where.begin, whole.end - where.begin};
    while (next != parts.end() && next->end <= here.begin)
      ++next;
    for (auto i = next; i != parts.end() && i->begin < here.end; ++i) {
      const auto part = intersect(*i, here);
      if (!f(tensor, values.subspan(part.begin, part.size())))
        return;
    }
  }
}

} // namespace

double squared_norm(const layout& parameters, range where, std::span<const float> values) {
  return squared_norm(parameters, where, values, {{0, where.size()}});
}

double squared_norm(const layout& parameters, range where, std::span<const float> values,
                    const range_list& parts) {
  double result = 0;
  for_each_part(parameters, where, values, parts, [&](auto& tensor, std::span<const float> part) {
    if (tensor.kind == parameter_kind::trainable)
      result += sum_of_squares(part);
    else if (tensor.kind == parameter_kind::state && !all_finite(part))
      result = std::numeric_limits<double>::quiet_NaN();
    return true;
  });
  return result;
}

std::string first_not_finite(const layout& parameters, range where, std::span<const float> values) {
  return first_not_finite(parameters, where, values, {{0, where.size()}});
}

std::string first_not_finite(const layout& parameters, range where, std::span<const float> values,
                             const range_list& parts) {
  std::string result;
  for_each_part(parameters, where, values, parts, [&](auto& tensor, std::span<const float> part) {
    if (!all_finite(part))
      result = tensor.name;
    return result.empty();
  });
  return result;
}

} // namespace troupe
