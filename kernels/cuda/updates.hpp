#pragma once

#include "kernels/cuda/stream.hpp"
#include "kernels/optimizers/optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

/// Like `update` of kernels/optimizers/optimizer.hpp, on device memory. The bits of the result are
/// the same, except for lamb. The whole range takes one kernel launch, or three for lamb. The
/// arguments `addend` and `finite` are not used. Throws std::invalid_argument if sizes differ.
/// @param space sum_space doubles (reductions.hpp) in device memory; only lamb uses them
void update(stream where, const optimizer& rule, const update_arguments<float>& arguments,
            double* space);

/// The update of one of several ranges.
struct range_step {
  optimizer rule;
  update_arguments<float> arguments;
};
/// Updates several ranges, with the same bits as one update() for each of them. A launch updates up
/// to 48 ranges whose rules and numbers (rate, scale, step and so on) are equal. The ranges must
/// not overlap. Throws std::invalid_argument if sizes differ, and for lamb.
void update(stream where, std::span<const range_step> all);

/// Updates only the rows `ids` of a tensor (rows, columns). The weights and the state cover the
/// whole tensor. The gradient covers only the rows `ids`: its shape is (ids.size(), columns). Other
/// rows keep their weights and state. The ids must be distinct and within the tensor. The update is
/// in place: `updated` must be the weights. Also throws std::invalid_argument for lamb, which needs
/// whole tensors.
void update_rows(stream where, const optimizer& rule, const update_arguments<float>& arguments,
                 std::span<const std::int32_t> ids, std::size_t columns);

/// The arguments of one `update_statistics` of kernels/optimizers/optimizer.hpp.
struct statistics_step {
  std::span<const float> weights;
  std::span<const float> sum;
  double scale = 1;
  double decay = 0;
  std::span<float> updated;
};
/// Updates several tensors of statistics, with the bits of the CPU. A launch updates up to 48
/// tensors whose `scale` and `decay` are equal. Throws std::invalid_argument if sizes differ.
void update_statistics(stream where, std::span<const statistics_step> all);

/// A copy of n elements on a device. Source and destination must not overlap.
struct range_copy {
  const float* from = nullptr;
  float* to = nullptr;
  std::size_t n = 0;
};
/// Makes all copies. A launch makes up to 48 copies.
void copy_ranges(stream where, std::span<const range_copy> all);

} // namespace troupe::cuda
