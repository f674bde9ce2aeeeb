#include "kernels/optimizers/gradient_norm.hpp"

#include "kernels/cpu/reduce.hpp"

#include <cmath>
#include <cstddef>
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

std::vector<norm_part> norm_parts_of(const layout& parameters, range where) {
  std::vector<norm_part> result;
  for (const auto& tensor : parameters.entries()) {
    const auto common = intersect(tensor.elements(), where);
    if (tensor.kind == parameter_kind::frozen || common.empty())
      continue;
    const range here{common.begin - where.begin, common.end - where.begin};
    const bool counts = tensor.kind == parameter_kind::trainable;
    if (!result.empty() && result.back().where.end == here.begin && result.back().counts == counts)
      result.back().where.end = here.end;
    else
      result.push_back({here, counts});
  }
  return result;
}

// A sum of squares in double is finite exactly if all elements are finite: the square of a finite
// float does not overflow in double, and neither does the sum of any number of such squares.
double squared_norm(std::span<const norm_part> parts, std::span<const double> squares) {
  double result = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!std::isfinite(squares[i]))
      return std::numeric_limits<double>::quiet_NaN();
    result += parts[i].counts ? squares[i] : 0;
  }
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
