#include "kernels/cuda/gradient_norm.hpp"

#include "kernels/cuda/reductions.hpp"

#include <utility>

namespace troupe::cuda {

gradient_norm::gradient_norm(device& where, std::vector<norm_part> parts)
  : parts_(std::move(parts)), squares_(where, parts_.size()) {}

void gradient_norm::submit(stream where, const float* gradient, double* space) const {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto part = parts_[i].where;
    sum_of_squares(where, part.size(), gradient + part.begin, space,
                   {squares_.data() + i, nullptr});
  }
}

} // namespace troupe::cuda
