#pragma once

#include "kernels/cuda/stream.hpp"
#include "kernels/optimizers/optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

/// Like `update` of kernels/optimizers/optimizer.hpp, on device memory. The bits of the result are
/// the same, except for lamb. The whole range takes one kernel launch, or three for lamb. The
/// arguments `addend`, `old_state` and `finite` are not used. Throws std::invalid_argument if sizes
/// differ.
/// @param space sum_space doubles (reductions.hpp) in device memory; only lamb uses them
void update(stream where, const optimizer& rule, const update_arguments<float>& arguments,
            double* space);

/// Updates only the rows `ids` of a tensor (rows, columns). The weights and the state cover the
/// whole tensor. The gradient covers only the rows `ids`: its shape is (ids.size(), columns). Other
/// rows keep their weights and state. The ids must be distinct and within the tensor. The update is
/// in place: `updated` must be the weights. Also throws std::invalid_argument for lamb, which needs
/// whole tensors.
void update_rows(stream where, const optimizer& rule, const update_arguments<float>& arguments,
                 std::span<const std::int32_t> ids, std::size_t columns);

/// Like `update_statistics` of kernels/optimizers/optimizer.hpp, with the same bits.
void update_statistics(stream where, std::span<const float> weights, std::span<const float> sum,
                       double scale, double decay, std::span<float> updated);

} // namespace troupe::cuda
