#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace troupe::cpu {

// Transcendental functions without branches, so that the compiler makes vectors of the loops around
// them. A vector's lanes and a loop's last elements run the same operations: results do not depend
// on positions. The double versions are those of the C library: they serve as reference.

inline double exp(double x) {
  return std::exp(x);
}
inline double tanh(double x) {
  return std::tanh(x);
}

/// Relative error below 2 ulp; 0 below -87.3 (no denormals), infinity above 88.7; NaN stays NaN.
/// x = n log 2 + r, |r| <= log(2) / 2, exp(r) by a polynomial (coefficients of Cephes' expf,
/// Moshier 1992).
inline float exp(float x) {
  constexpr float high = 88.72283F;
  constexpr float low = -87.33654F;
  constexpr float to_integer = 12582912.0F; // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x > high ? high : (x < low ? low : x);
  const float shifted = std::fma(clamped, 1.44269504F, to_integer);
  const float n = shifted - to_integer;
  float r = std::fma(n, -0.693359375F, clamped);
  r = std::fma(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = std::fma(p, r, 1.3981999507e-3F);
  p = std::fma(p, r, 8.3334519073e-3F);
  p = std::fma(p, r, 4.1665795894e-2F);
  p = std::fma(p, r, 1.6666665459e-1F);
  p = std::fma(p, r, 5.0000001201e-1F);
  p = std::fma(p, r * r, r) + 1.0F;
  // times 2^n, in two factors because 2^128 is not a float
  const auto bits = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(to_integer);
  const auto half = bits >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((bits - half + 127) << 23);
  float y = p * first * second;
  y = x > high ? HUGE_VALF : y;
  y = x < low ? 0.0F : y;
  return x != x ? x : y;
}

/// Relative error below 3 ulp; NaN stays NaN. Small |x|: odd polynomial (Cephes' tanhf); else 1 - 2
/// / (exp(2 |x|) + 1).
inline float tanh(float x) {
  const float a = std::fabs(x);
  const float e = exp(2 * a);
  const float large = std::copysign(1.0F - 2.0F / (e + 1.0F), x);
  const float z = x * x;
  float p = -5.70498872745e-3F;
  p = std::fma(p, z, 2.06390887954e-2F);
  p = std::fma(p, z, -5.37397155531e-2F);
  p = std::fma(p, z, 1.33314422036e-1F);
  p = std::fma(p, z, -3.33332819422e-1F);
  const float small = std::fma(p * z, x, x);
  const float y = a < 0.625F ? small : large;
  return x != x ? x : y;
}

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

/// max(x, 0); NaN stays NaN.
template <class T>
T relu(T x) {
  return x < T(0) ? T(0) : x;
}

/// Derivatives by the result y, times dy.
template <class T>
T relu_gradient(T dy, T y) {
  return y > T(0) ? dy : (y == y ? T(0) : y);
}
template <class T>
T tanh_gradient(T dy, T y) {
  return dy * std::fma(-y, y, T(1));
}
template <class T>
T sigmoid_gradient(T dy, T y) {
  return dy * (y * (T(1) - y));
}

} // namespace troupe::cpu
