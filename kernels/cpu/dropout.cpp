#include "kernels/cpu/dropout.hpp"

#include "kernels/cpu/dropout_mask.hpp"
#include "kernels/cpu/vectorize.hpp"

namespace troupe::cpu {

template <class T>
void dropout(std::size_t n, const T* x, double rate, std::uint64_t key, T* out) {
  const auto threshold = static_cast<std::int32_t>(rate * 16777216.0);
  const T factor = static_cast<T>(1 / (1 - rate));
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    out[i] = dropout_bits(i, key) >= threshold ? x[i] * factor : T(0);
}

template void dropout(std::size_t, const float*, double, std::uint64_t, float*);
template void dropout(std::size_t, const double*, double, std::uint64_t, double*);

} // namespace troupe::cpu
