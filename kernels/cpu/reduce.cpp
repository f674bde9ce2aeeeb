#include "kernels/cpu/reduce.hpp"

#include "kernels/cpu/flush_denormals.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace troupe {

// These functions are plain loops. The compiler vectorizes them for AVX2, so only the speed of the
// memory limits them. Functions that run under flush_denormals are not inlined. Otherwise, the
// compiler might move some of their arithmetic out of the scope of the flush_denormals object.

namespace {

template <class T>
[[gnu::noinline]] void add_all(std::size_t n, const T* x, const T* y, T* z) {
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    z[i] = x[i] + y[i];
}

} // namespace

void add(std::span<const float> a, std::span<const float> b, std::span<float> out) {
  if (a.size() != b.size() || a.size() != out.size())
    throw std::invalid_argument("add: the ranges differ in size");
  const cpu::flush_denormals mode;
  add_all(a.size(), a.data(), b.data(), out.data());
}

void add(std::span<const double> a, std::span<const double> b, std::span<double> out) {
  if (a.size() != b.size() || a.size() != out.size())
    throw std::invalid_argument("add: the ranges differ in size");
  const cpu::flush_denormals mode;
  add_all(a.size(), a.data(), b.data(), out.data());
}

void accumulate(std::span<float> y, std::span<const float> x) {
  if (x.size() != y.size())
    throw std::invalid_argument("accumulate: the ranges differ in size");
  const cpu::flush_denormals mode;
  add_all(y.size(), y.data(), x.data(), y.data());
}

void multiply(std::span<float> y, float factor) {
  for (auto& x : y)
    x *= factor;
}

template <class T>
double sum_of_squares(std::span<const T> x) noexcept {
  constexpr std::size_t width = 16;
  double lanes[width] = {};
  std::size_t i = 0;
  for (; i + width <= x.size(); i += width)
    for (std::size_t k = 0; k < width; ++k) {
      const auto value = static_cast<double>(x[i + k]);
      lanes[k] += value * value;
    }
  for (std::size_t k = 0; i < x.size(); ++i, ++k) {
    const auto value = static_cast<double>(x[i]);
    lanes[k] += value * value;
  }
  double result = 0;
  for (const double lane : lanes)
    result += lane;
  return result;
}

template double sum_of_squares<float>(std::span<const float>) noexcept;
template double sum_of_squares<double>(std::span<const double>) noexcept;

bool all_finite(std::span<const float> x) noexcept {
  // An infinity or a NaN has an exponent of all ones. The loop uses integer arithmetic and has no
  // early exit, so it can be vectorized. Integer arithmetic also does not depend on floating-point
  // modes, such as flush_denormals.
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t found = 0;
  for (float v : x)
    found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(v) & exponent) == exponent);
  return found == 0;
}

} // namespace troupe
