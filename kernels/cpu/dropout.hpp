#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

/// out[i] = x[i] / (1 - rate) if the mask of `key` keeps element i, else 0.
/// kernels/graph/operations.hpp defines the mask. out may be x.
template <class T>
void dropout(std::size_t n, const T* x, double rate, std::uint64_t key, T* out);

} // namespace troupe::cpu
