#include "kernels/cpu/dropout.hpp"

#include "kernels/cpu/vectorize.hpp"

namespace troupe::cpu {

namespace {

/// Wellons' low bias mixer. It uses only 32-bit arithmetic, so that eight elements fit into a
/// vector.
std::uint32_t mix(std::uint32_t h) noexcept {
  h ^= h >> 16;
  h *= 0x7feb352dU;
  h ^= h >> 15;
  h *= 0x846ca68bU;
  h ^= h >> 16;
  return h;
}

} // namespace

template <class T>
void dropout(std::size_t n, const T* x, double rate, std::uint64_t key, T* out) {
  const auto low = static_cast<std::uint32_t>(key);
  const auto high = static_cast<std::uint32_t>(key >> 32);
  // Signed, because processors only compare vectors of signed numbers.
  const auto threshold = static_cast<std::int32_t>(rate * 16777216.0);
  const T factor = static_cast<T>(1 / (1 - rate));
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const auto counter = static_cast<std::uint32_t>(i) * 0x9e3779b9U + low;
    const auto bits = static_cast<std::int32_t>(mix(mix(counter) ^ high) >> 8);
    out[i] = bits >= threshold ? x[i] * factor : T(0);
  }
}

template void dropout(std::size_t, const float*, double, std::uint64_t, float*);
template void dropout(std::size_t, const double*, double, std::uint64_t, double*);

} // namespace troupe::cpu
