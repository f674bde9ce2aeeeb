#include "kernels/cuda/gradient_norm.hpp"

#include "kernels/cuda/executor_state.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/graph/layout.hpp"

#include <cmath>
#include <cstddef>
#include <limits>

namespace troupe::cuda {

std::vector<norm_part> norm_parts_of(const plan& what) {
  std::vector<norm_part> result;
  if (!what.has_gradients())
    return result;
  for (const auto& tensor : what.parameters().entries()) {
    if (tensor.kind == parameter_kind::frozen)
      continue;
    const auto where = tensor.elements();
    const bool counts = tensor.kind == parameter_kind::trainable;
    if (!result.empty() && result.back().where.end == where.begin && result.back().counts == counts)
      result.back().where.end = where.end;
    else
      result.push_back({where, counts});
  }
  return result;
}

void submit_norm(executor_state& s) {
  for (std::size_t i = 0; i < s.norm_parts.size(); ++i) {
    const auto where = s.norm_parts[i].where;
    sum_of_squares(s.stream, where.size(), s.gradient.data() + where.begin, s.space.data(),
                   {s.squares.data() + i, nullptr});
  }
}

// A sum of squares in double is finite exactly if all elements are finite: the square of a finite
// float does not overflow in double, and neither does the sum of any number of such squares.
double squared_norm_of(const executor_state& s) {
  double result = 0;
  for (std::size_t i = 0; i < s.norm_parts.size(); ++i) {
    const auto part = s.squares.host()[i];
    if (!std::isfinite(part))
      return std::numeric_limits<double>::quiet_NaN();
    result += s.norm_parts[i].counts ? part : 0;
  }
  return result;
}

} // namespace troupe::cuda
