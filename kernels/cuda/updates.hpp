#pragma once

#include "kernels/cuda/stream.hpp"
#include "kernels/optimizers/optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

/// `update` of kernels/optimizers/optimizer.hpp on device memory, with the same bits except for
/// lamb: one launch over the flat range (lamb: three). Throws std::invalid_argument when sizes
/// differ. `space`: sum_space doubles (reductions.hpp) in device memory, used by lamb alone.
void update(stream where, const optimizer& rule, const update_arguments<float>& arguments,
            double* space);

/// The same for some rows of a tensor (rows, columns): the weights and the state are those of the
/// whole tensor, the gradient is that of the named rows, (ids.size(), columns). Other rows keep
/// their weights and state. Ids are distinct and within the tensor. In place: `updated` must be the
/// weights. Throws std::invalid_argument for lamb, too, which works on whole tensors.
void update_rows(stream where, const optimizer& rule, const update_arguments<float>& arguments,
                 std::span<const std::int32_t> ids, std::size_t columns);

/// `update_statistics` of kernels/optimizers/optimizer.hpp, with the same bits.
void update_statistics(stream where, std::span<const float> weights, std::span<const float> sum,
                       double scale, double decay, std::span<float> updated);

} // namespace troupe::cuda
