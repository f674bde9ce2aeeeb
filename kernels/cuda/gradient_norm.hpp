#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/staged_buffer.hpp"
#include "kernels/optimizers/gradient_norm.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace troupe::cuda {

/// Computes the squared norm of a gradient, or of a range of a gradient, in device memory.
class gradient_norm {
public:
  gradient_norm() = default;
  /// @param parts the parts of the gradient (norm_parts_of). Each takes two launches.
  gradient_norm(device& where, std::vector<norm_part> parts);

  /// Bytes of device memory, and of pinned memory.
  static std::size_t bytes(std::span<const norm_part> parts) noexcept {
    return parts.size() * sizeof(double);
  }

  /// Submits kernels that compute the sum of squares of each part.
  /// @param space sum_space doubles (reductions.hpp) in device memory
  void submit(stream where, const float* gradient, double* space) const;
  /// Submits a copy of these sums to the host.
  void fetch(stream where) const { squares_.fetch(where, 0, squares_.size()); }
  /// The squared norm (troupe::squared_norm). The copy must have ended.
  double squared() const { return squared_norm(parts_, squares_.host()); }

private:
  std::vector<norm_part> parts_;
  staged_buffer<double> squares_;
};

} // namespace troupe::cuda
