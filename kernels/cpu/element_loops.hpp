#pragma once

// The loops of elementwise.cpp, for vectors of any width. Two files include this file:
// elementwise.cpp, and loops_avx512.cpp, which is compiled for larger vectors. All functions have
// internal linkage. Otherwise, both files would define the same inline functions, the linker would
// keep only one definition, and a processor without AVX-512 might run code for AVX-512.

#include "kernels/cpu/element_formulas.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <array>
#include <cmath>

namespace troupe::cpu {

/// The loops of one element-wise operation.
template <class T>
struct element_row {
  operation op;
  element_loop<T>* loop;
  /// Loops that add a bias before the operation: out (rows, columns) = f(x + b). For after_bias, b
  /// is (columns) or null. For after_row_bias, b is (rows) or null. If an operation has no such
  /// loop, the bias and the operation take two passes.
  void (*after_bias)(std::size_t, std::size_t, const T*, const T*, T*) = nullptr;
  void (*after_row_bias)(std::size_t, std::size_t, const T*, const T*, T*) = nullptr;
  bool epilogue = false;
  /// True if larger vectors make the operation faster. Other operations are limited by the speed of
  /// the memory.
  bool costly = false;
};

namespace {

/// out[i] = f(x[i]). `out` may be one of the operands, because element i is read before it is
/// written.
template <class T, class F>
void map(std::size_t n, const T* x, T* out, F f) {
  if (x == out) {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = f(out[i]);
    return;
  }
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    out[i] = f(x[i]);
}

template <class T, class F>
void map(std::size_t n, const T* a, const T* b, T* out, F f) {
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    out[i] = f(a[i], b[i]);
}

template <class T, class F>
void map(std::size_t n, const T* a, const T* b, const T* c, T* out, F f) {
  TROUPE_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i)
    out[i] = f(a[i], b[i], c[i]);
}

template <class T, class F>
void map_rows(std::size_t rows, std::size_t columns, const T* x, const T* b, T* out, F f) {
  for (std::size_t r = 0; r < rows; ++r) {
    const T* source = x + r * columns;
    T* target = out + r * columns;
    if (b != nullptr) {
      TROUPE_INDEPENDENT
      for (std::size_t j = 0; j < columns; ++j)
        target[j] = f(source[j] + b[j]);
    } else {
      map(columns, source, target, f);
    }
  }
}

// F is the formula, f(a, b, c, factor). An operand that the formula does not read may be any
// number.

template <class T, class F>
constexpr element_row<T> unary(operation op, F) {
  return {op, [](std::size_t n, const T* a, const T*, const T*, T factor, T* out) {
            map(n, a, out, [factor](T x) { return F{}(x, x, x, factor); });
          }};
}

template <class T, class F>
constexpr element_row<T> binary(operation op, F) {
  return {op, [](std::size_t n, const T* a, const T* b, const T*, T factor, T* out) {
            map(n, a, b, out, [factor](T x, T y) { return F{}(x, y, y, factor); });
          }};
}

template <class T, class F>
constexpr element_row<T> ternary(operation op, F) {
  return {op, [](std::size_t n, const T* a, const T* b, const T* c, T factor, T* out) {
            map(n, a, b, c, out, [factor](T x, T y, T z) { return F{}(x, y, z, factor); });
          }};
}

template <class T, class F>
void map_with_row_bias(std::size_t rows, std::size_t columns, const T* x, const T* b, T* out, F f) {
  for (std::size_t r = 0; r < rows; ++r) {
    const T bias = b != nullptr ? b[r] : T(0);
    map(columns, x + r * columns, out + r * columns, [f, bias](T v) { return f(v + bias); });
  }
}

/// An activation that a product can apply to its result.
template <class T, class F>
constexpr element_row<T> activation(operation op, F f) {
  auto row = unary<T>(op, f);
  row.after_bias = [](std::size_t rows, std::size_t columns, const T* x, const T* b, T* out) {
    map_rows(rows, columns, x, b, out, [](T v) { return F{}(v, v, v, T(1)); });
  };
  row.after_row_bias = [](std::size_t rows, std::size_t columns, const T* x, const T* b, T* out) {
    map_with_row_bias(rows, columns, x, b, out, [](T v) { return F{}(v, v, v, T(1)); });
  };
  row.epilogue = true;
  return row;
}

/// The derivative of an activation, times the result of a matrix product. The second operand is
/// instruction::epilogue_operand, from which the derivative is computed.
template <class T, class F>
constexpr element_row<T> derivative(operation op, F f) {
  auto row = binary<T>(op, f);
  row.epilogue = true;
  return row;
}

template <class T>
constexpr element_row<T> costly(element_row<T> row) {
  row.costly = true;
  return row;
}
template <class T, class F>
constexpr element_row<T> costly_unary(operation op, F f) {
  return costly(unary<T>(op, f));
}
template <class T, class F>
constexpr element_row<T> costly_binary(operation op, F f) {
  return costly(binary<T>(op, f));
}
template <class T, class F>
constexpr element_row<T> costly_activation(operation op, F f) {
  return costly(activation<T>(op, f));
}

template <class T>
const element_row<T>* element_rows() {
#define TROUPE_ELEMENT_LOOP(kind, name, formula)                                                   \
  kind<T>(operation::name,                                                                         \
          []([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c,                     \
             [[maybe_unused]] T factor) { return formula; }),
  static constexpr auto table = [] {
    std::array<element_row<T>, operation_count> result{};
    for (const auto& row : {TROUPE_ELEMENTS(TROUPE_ELEMENT_LOOP)})
      result[static_cast<std::size_t>(row.op)] = row;
    return result;
  }();
#undef TROUPE_ELEMENT_LOOP
  return &table[0];
}

} // namespace

} // namespace troupe::cpu
