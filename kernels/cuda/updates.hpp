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

/// Ranges of elements of a vector on a device, in ascending order. In a packed vector, they follow
/// each other without gaps: range i begins at element begins[i] of the vector, and at element
/// firsts[i] of the packed vector. Both arrays are in device memory.
struct packed_ranges {
  std::span<const std::uint32_t> begins;
  std::span<const std::uint32_t> firsts;
  /// Number of elements of all ranges.
  std::size_t elements = 0;
};
/// Copies the ranges of several vectors of n elements, which follow each other in memory, to packed
/// vectors, which also follow each other.
void pack_ranges(stream where, const packed_ranges& which, std::size_t vectors, std::size_t n,
                 const float* from, float* to);
/// The inverse of pack_ranges(). Other elements of `to` keep their values.
void unpack_ranges(stream where, const packed_ranges& which, std::size_t vectors, std::size_t n,
                   const float* from, float* to);
/// Sets the ranges of a vector of n elements to 0.
void clear_ranges(stream where, const packed_ranges& which, std::size_t n, float* to);

} // namespace troupe::cuda
