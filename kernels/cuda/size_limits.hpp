#pragma once

#include "kernels/plan/plan.hpp"

#include <cstddef>

namespace troupe::cuda {

/// Products, and kernels for images, attention and embedding gradients, count in 32 bits, because
/// this is faster. Some of these numbers have a sign. Everything that they count must be less than
/// this:
/// - products: the rows and the columns of a matrix (a limit of cuBLAS);
/// - convolutions: the elements of an image, and of its result; the pixels of the padded image and
///   one stride; samples times positions of the window (or pixels of an image gradient); the
///   weights of a filter;
/// - pooling: the pixels of the padded image and one stride;
/// - attention: samples times heads times queries or keys;
/// - embedding gradients: the ids of all samples.
inline constexpr std::size_t size_limit = std::size_t{1} << 31;

/// Throws input_error, with the name of the layer, if a kernel would count up to size_limit or
/// more in a run with the largest number of samples of the plan.
void check_sizes(const plan& what);

} // namespace troupe::cuda
