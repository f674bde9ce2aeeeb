#pragma once

#include "kernels/graph/dtype.hpp"

#include <cstddef>

namespace troupe::cpu {

/// out[i] = x[i] for n elements. `type` is the type of x, which has 16 bits. T: float, double.
template <class T>
void widen(dtype type, std::size_t n, const void* x, T* out);

/// out[i] = x[i] for n elements, rounded to `type`, which has 16 bits (kernels/narrow_float.hpp). A
/// double is first rounded to float.
template <class T>
void narrow(dtype type, std::size_t n, const T* x, void* out);

} // namespace troupe::cpu
