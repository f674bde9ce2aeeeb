#include "kernels/cpu/conversions.hpp"

#include "kernels/cpu/vectorize.hpp"
#include "kernels/narrow_float.hpp"

namespace troupe::cpu {

namespace {

template <class Narrow, class T>
void widen_all(std::size_t n, const void* from, T* out) {
  const auto* const x = static_cast<const Narrow*>(from);
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<T>(widened(x[i]));
}

template <class Narrow, class T>
void narrow_all(std::size_t n, const T* x, void* to) {
  auto* const out = static_cast<Narrow*>(to);
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    out[i] = rounded_to<Narrow>(static_cast<float>(x[i]));
}

} // namespace

template <class T>
void widen(dtype type, std::size_t n, const void* x, T* out) {
  if (type == dtype::bfloat16)
    widen_all<bfloat16>(n, x, out);
  else
    widen_all<float16>(n, x, out);
}

template <class T>
void narrow(dtype type, std::size_t n, const T* x, void* out) {
  if (type == dtype::bfloat16)
    narrow_all<bfloat16>(n, x, out);
  else
    narrow_all<float16>(n, x, out);
}

template void widen(dtype, std::size_t, const void*, float*);
template void widen(dtype, std::size_t, const void*, double*);
template void narrow(dtype, std::size_t, const float*, void*);
template void narrow(dtype, std::size_t, const double*, void*);

} // namespace troupe::cpu
