#pragma once

#include "kernels/host_device.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace troupe::cpu {

// Functions of single elements, for the CPU and for CUDA kernels.
//
// The float versions of exp, log and similar functions have no branches, so the compiler can
// vectorize loops over them. Elements in a vector and the remaining elements at the end of a loop
// go through the same operations. So the result of an element does not depend on its position. The
// versions for double call the C library. They serve as a reference.

TROUPE_HOST_DEVICE inline double exp(double x) {
  return std::exp(x);
}
TROUPE_HOST_DEVICE inline double exp_of_negative(double x) {
  return std::exp(x);
}
TROUPE_HOST_DEVICE inline double log(double x) {
  return std::log(x);
}
TROUPE_HOST_DEVICE inline double tanh(double x) {
  return std::tanh(x);
}
TROUPE_HOST_DEVICE inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
TROUPE_HOST_DEVICE inline double erf(double x) {
  return std::erf(x);
}
TROUPE_HOST_DEVICE inline double erfc(double x) {
  return std::erfc(x);
}
TROUPE_HOST_DEVICE inline double sine(double x) {
  return std::sin(x);
}
TROUPE_HOST_DEVICE inline double cosine(double x) {
  return std::cos(x);
}
TROUPE_HOST_DEVICE inline double softplus(double x) {
  return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::fabs(x)));
}

inline constexpr float integer_shift = 12582912.0F; // 1.5 * 2^23: adding it rounds to an integer
inline constexpr float least_exp = -87.33654F;      // below this number, exp() returns 0

/// The polynomial part of exp(x). It is exp(r), where x = n log 2 + r with |r| <= log(2) / 2.
/// `shifted` is n + integer_shift. The coefficients are those of Cephes' expf (Moshier 1992).
TROUPE_HOST_DEVICE inline float exp_of_rest(float x, float shifted) {
  const float n = shifted - integer_shift;
  float r = std::fma(n, -0.693359375F, x);
  r = std::fma(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = std::fma(p, r, 1.3981999507e-3F);
  p = std::fma(p, r, 8.3334519073e-3F);
  p = std::fma(p, r, 4.1665795894e-2F);
  p = std::fma(p, r, 1.6666665459e-1F);
  p = std::fma(p, r, 5.0000001201e-1F);
  return std::fma(p, r * r, r) + 1.0F;
}

/// e^x. Relative error below 2 ulp. The result is 0 below -87.3 (no denormals) and infinity above
/// 88.7. NaN stays NaN.
TROUPE_HOST_DEVICE inline float exp(float x) {
  constexpr float high = 88.72283F;
  const float clamped = x > high ? high : (x < least_exp ? least_exp : x);
  const float shifted = std::fma(clamped, 1.44269504F, integer_shift);
  const float p = exp_of_rest(clamped, shifted);
  // Multiplies by 2^n, in two factors, because 2^128 is not a float.
  const auto bits =
    std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(integer_shift);
  const auto half = bits >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((bits - half + 127) << 23);
  float y = p * first * second;
  y = x > high ? HUGE_VALF : y;
  y = x < least_exp ? 0.0F : y;
  return x != x ? x : y;
}

/// exp(x) for x <= 0 (also -infinity), and for NaN. The result has the same bits as that of exp().
/// The function has half as many instructions, because the power of 2 is at most 1, and a NaN needs
/// no test.
TROUPE_HOST_DEVICE inline float exp_of_negative(float x) {
  const float shifted = std::fma(x, 1.44269504F, integer_shift);
  // The exponent of the result is between -126 and 0.
  const auto exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  const float power = std::bit_cast<float>(exponent + (127U << 23));
  return x < least_exp ? 0.0F : exp_of_rest(x, shifted) * power;
}

/// The smaller number (not_above) or the larger number (not_below). NaN if x is NaN. One
/// instruction on a GPU.
TROUPE_HOST_DEVICE inline float not_above(float x, float high) {
#ifdef __CUDA_ARCH__
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(high));
  return result;
#else
  return x > high ? high : x;
#endif
}
TROUPE_HOST_DEVICE inline float not_below(float x, float low) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(low));
  return result;
#else
  return x < low ? low : x;
#endif
}

/// 1 / x, for NaN, and for 2^-100 <= |x| <= 2^100. On a GPU, it is the part of a division that such
/// numbers need. The result has the same bits as a division, and there are no branches, so that a
/// thread can compute several elements at the same time.
TROUPE_HOST_DEVICE inline float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return std::fma(result, std::fma(-x, result, 1.0F), result);
#else
  return 1.0F / x;
#endif
}

/// 2^(n + f), for |f| <= 1/2 and -126 <= n <= 127. `shifted` is n + integer_shift. Relative error
/// below 1 ulp. NaN if f is NaN. The polynomial was fitted for troupe.
TROUPE_HOST_DEVICE inline float power_of_two(float shifted, float f) {
  float p = 1.481517914e-4F;
  p = std::fma(p, f, 1.336140340e-3F);
  p = std::fma(p, f, 9.619122746e-3F);
  p = std::fma(p, f, 5.550408581e-2F);
  p = std::fma(p, f, 2.402265059e-1F);
  p = std::fma(p, f, 6.931471806e-1F);
  p = std::fma(p, f, 1.0F);
  const auto exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  return p * std::bit_cast<float>(exponent + (127U << 23));
}

inline constexpr float log2_e = 1.44269502F; // log2(e) = log2_e + log2_e_rest
inline constexpr float log2_e_rest = 1.92596299e-8F;

/// The hyperbolic tangent. Relative error below 2 ulp. NaN stays NaN. For |x| < 0.625, the result
/// is an odd polynomial (Cephes' tanhf). Otherwise, it is 1 - 2 / (exp(2 |x|) + 1) with the sign of
/// x.
TROUPE_HOST_DEVICE inline float tanh(float x) {
  const float a = std::fabs(x);
  const float b = not_above(a, 10.0F); // tanh(10) is rounded to 1
  const float shifted = std::fma(b, 2 * log2_e, integer_shift);
  const float f = std::fma(b, 2 * log2_e, integer_shift - shifted);
  const float large = std::fma(-2.0F, reciprocal(power_of_two(shifted, f) + 1.0F), 1.0F);
  const float z = x * x;
  float p = -5.70498872745e-3F;
  p = std::fma(p, z, 2.06390887954e-2F);
  p = std::fma(p, z, -5.37397155531e-2F);
  p = std::fma(p, z, 1.33314422036e-1F);
  p = std::fma(p, z, -3.33332819422e-1F);
  const float small = std::fma(p * z, x, x);
  return a < 0.625F ? small : std::copysign(large, x);
}

/// 1 / (1 + exp(-x)). Relative error below 2 ulp. The result is 0 below -87.3. NaN stays NaN.
TROUPE_HOST_DEVICE inline float sigmoid(float x) {
  const float y = not_below(not_above(x, 80.0F), least_exp); // sigmoid(80) is rounded to 1
  const float shifted = std::fma(y, -log2_e, integer_shift);
  float f = std::fma(y, -log2_e, integer_shift - shifted);
  f = std::fma(y, -log2_e_rest, f);
  const float result = reciprocal(power_of_two(shifted, f) + 1.0F);
  return x < least_exp ? 0.0F : result;
}

/// The natural logarithm. Relative error below 2 ulp. The result is -infinity for 0 and positive
/// denormals, and NaN for x < 0. NaN stays NaN.
///
/// With x = 2^n m and sqrt(1/2) <= m < sqrt(2), a polynomial in m - 1 gives log(m) (coefficients of
/// Cephes' logf).
TROUPE_HOST_DEVICE inline float log(float x) {
  // Unsigned, because a subtraction of signed numbers would overflow for negative x.
  const auto bits = std::bit_cast<std::uint32_t>(x);
  constexpr std::uint32_t root_half = 0x3f3504f3;
  const std::int32_t n = static_cast<std::int32_t>(bits - root_half) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(n) << 23)) - 1.0F;
  const float e = static_cast<float>(n);
  const float z = f * f;
  float p = 7.0376836292e-2F;
  p = std::fma(p, f, -1.1514610310e-1F);
  p = std::fma(p, f, 1.1676998740e-1F);
  p = std::fma(p, f, -1.2420140846e-1F);
  p = std::fma(p, f, 1.4249322787e-1F);
  p = std::fma(p, f, -1.6668057665e-1F);
  p = std::fma(p, f, 2.0000714765e-1F);
  p = std::fma(p, f, -2.4999993993e-1F);
  p = std::fma(p, f, 3.3333331174e-1F);
  float y = f * z * p;
  y = std::fma(e, -2.12194440e-4F, y);
  y = std::fma(z, -0.5F, y);
  y = std::fma(e, 0.693359375F, f + y);
  y = x < 1.17549435e-38F ? -HUGE_VALF : y;
  y = x < 0 ? std::bit_cast<float>(0x7fc00000) : y;
  return x < HUGE_VALF ? y : x;
}

/// The error function. Absolute error below 4.5e-7. NaN stays NaN. For |x| <= 4, the result is an
/// odd rational function (coefficients of Eigen's generic_fast_erf_float). For |x| > 4, it is the
/// value of this function at 4 or -4.
TROUPE_HOST_DEVICE inline float erf(float x) {
  const float a = x > 4 ? 4 : (x < -4 ? -4 : x);
  const float z = a * a;
  float p = -2.72614225801306e-10F;
  p = std::fma(p, z, 2.77068142495902e-8F);
  p = std::fma(p, z, -2.10102402082508e-6F);
  p = std::fma(p, z, -5.69250639462346e-5F);
  p = std::fma(p, z, -7.34990630326855e-4F);
  p = std::fma(p, z, -2.95459980854025e-3F);
  p = std::fma(p, z, -1.60960333262415e-2F);
  float q = -1.45660718464996e-5F;
  q = std::fma(q, z, -2.13374055278905e-4F);
  q = std::fma(q, z, -1.68282697438203e-3F);
  q = std::fma(q, z, -7.37332916720468e-3F);
  q = std::fma(q, z, -1.42647390514189e-2F);
  return a * (p * reciprocal(q));
}

/// Calls next(c) for each coefficient c of the polynomial p in erfc(), the highest power first.
///
/// For 0 <= a <= 9.5 and q = (a - 2) / (a + 2), (1 + 2 a) exp(a^2) erfc(a) = 1 + p(q), with a
/// relative error below 2^-26. The variable q is that of Shepherd and Laframboise, 1981
/// (Mathematics of Computation 36). The coefficients were fitted for troupe.
///
/// Always inlined, because a file that is compiled for AVX-512 must not define a function that
/// other files may use.
template <class F>
#ifndef __CUDACC__
[[gnu::always_inline]]
#endif
TROUPE_HOST_DEVICE inline void
erfc_coefficients(F next) {
  next(-4.136663857e-4F);
  next(-1.249643305e-3F);
  next(1.319394858e-3F);
  next(8.648574717e-3F);
  next(-8.059423468e-3F);
  next(-5.420894825e-2F);
  next(1.640550235e-1F);
  next(-1.660310036e-1F);
  next(-9.276396485e-2F);
  next(2.769783874e-1F);
}

/// 1 - erf(x), without cancellation for large x. The relative error is below 5 ulp if the result is
/// a normal float (x < 9.19). For larger x, the result is denormal or 0 (with flush_denormals,
/// always 0). NaN stays NaN. For negative x, the result is 2 - erfc(-x).
TROUPE_HOST_DEVICE inline float erfc(float x) {
  const float distance = std::fabs(x);
  const float a = distance > 9.5F ? 9.5F : distance;
  const float q = (a - 2.0F) * reciprocal(a + 2.0F);
  float p = 0;
  erfc_coefficients([&](float c) { p = std::fma(p, q, c); });
  // exp(-a^2), corrected for the rounding error of a^2.
  const float square = a * a;
  const float rest = std::fma(a, a, -square);
  float tail = (p + 1.0F) * reciprocal(std::fma(2.0F, a, 1.0F)) * exp_of_negative(-square);
  tail = std::fma(tail, -rest, tail);
  return x < 0 ? 2.0F - tail : tail;
}

/// sin(x + quarters * pi / 2). Relative error below 2 ulp for |x| < 1e15, except near the zeros
/// beyond 1e9. For larger |x|, whose floats are farther apart than a period, the result is that of
/// x = 0. Infinity gives NaN, and NaN stays NaN.
///
/// With x = n pi / 2 + r and |r| <= pi / 4, polynomials in r give sin(r) and cos(r) (coefficients
/// of Cephes' sinf and cosf, Moshier 1992). r is computed in double, with pi / 2 as a sum of two
/// numbers.
TROUPE_HOST_DEVICE inline float sine_after(float x, std::uint64_t quarters) {
  constexpr double integer = 6755399441055744.0; // 1.5 * 2^52: adding it rounds to an integer
  constexpr double half_pi = 1.5707963267948966;
  constexpr double rest_of_half_pi = 6.123233995736766e-17;
  const float size = std::fabs(x);
  const double wide = size < 1e15F ? static_cast<double>(x) : 0.0;
  const double shifted = std::fma(wide, 2 * std::numbers::inv_pi, integer);
  const double n = shifted - integer;
  const auto r = static_cast<float>(std::fma(n, -rest_of_half_pi, std::fma(n, -half_pi, wide)));
  const float z = r * r;
  float s = std::fma(-1.9515295891e-4F, z, 8.3321608736e-3F);
  s = std::fma(s, z, -1.6666654611e-1F);
  s = std::fma(s * z, r, r);
  float c = std::fma(2.443315711809948e-5F, z, -1.388731625493765e-3F);
  c = std::fma(c, z, 4.166664568298827e-2F);
  c = std::fma(c * z, z, std::fma(-0.5F, z, 1.0F));
  const auto quadrant = std::bit_cast<std::uint64_t>(shifted) + quarters;
  const float y = (quadrant & 1U) != 0 ? c : s;
  const float turned = (quadrant & 2U) != 0 ? -y : y;
  return size < HUGE_VALF ? turned : x - x;
}
TROUPE_HOST_DEVICE inline float sine(float x) {
  return sine_after(x, 0);
}
TROUPE_HOST_DEVICE inline float cosine(float x) {
  return sine_after(x, 1);
}

/// log(1 + exp(x)), computed as max(x, 0) + log(1 + exp(-|x|)). NaN stays NaN.
TROUPE_HOST_DEVICE inline float softplus(float x) {
  const float e = exp_of_negative(-std::fabs(x));
  // Computes log(1 + e), accurately also for small e: the factor e / d corrects the rounding of 1 +
  // e (Kahan's log1p).
  const float u = 1.0F + e;
  const float d = u - 1.0F;
  const float l = d > 0 ? log(u) * (e * reciprocal(d)) : e;
  return (x < 0 ? 0.0F : x) + l;
}

template <class T>
TROUPE_HOST_DEVICE T gelu(T x) {
  constexpr auto root_half = T(std::numbers::sqrt2 / 2);
  return T(0.5) * x * (T(1) + erf(root_half * x));
}
template <class T>
TROUPE_HOST_DEVICE T gelu_gradient(T dy, T x) {
  constexpr auto root_half = T(std::numbers::sqrt2 / 2);
  constexpr auto height = T(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  const T below = T(0.5) * (T(1) + erf(root_half * x));
  return dy * std::fma(x * height, exp_of_negative(T(-0.5) * x * x), below);
}

template <class T>
TROUPE_HOST_DEVICE T sign(T x) {
  return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
}

/// max(x, 0). NaN stays NaN.
template <class T>
TROUPE_HOST_DEVICE T relu(T x) {
  return x < T(0) ? T(0) : x;
}

/// The four functions below: the derivative of an activation, computed from its result y and
/// multiplied by dy.
template <class T>
TROUPE_HOST_DEVICE T relu_gradient(T dy, T y) {
  return y > T(0) ? dy : (y == y ? T(0) : y);
}
template <class T>
TROUPE_HOST_DEVICE T leaky_relu_gradient(T dy, T y, T slope) {
  return y > T(0) ? dy : (y == y ? slope * dy : y);
}
template <class T>
TROUPE_HOST_DEVICE T tanh_gradient(T dy, T y) {
  return dy * std::fma(-y, y, T(1));
}
template <class T>
TROUPE_HOST_DEVICE T sigmoid_gradient(T dy, T y) {
  return dy * (y * (T(1) - y));
}

/// The larger number (maximum) or the smaller number (minimum). NaN if a or b is NaN.
template <class T>
TROUPE_HOST_DEVICE T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
TROUPE_HOST_DEVICE T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
/// 1 if a > b, otherwise 0. The result is 0 if a or b is NaN, as in IEEE 754.
template <class T>
TROUPE_HOST_DEVICE T greater(T a, T b) {
  return a > b ? T(1) : T(0);
}
template <class T>
TROUPE_HOST_DEVICE T select(T condition, T a, T b) {
  return condition > T(0) ? a : (condition == condition ? b : condition);
}

} // namespace troupe::cpu
