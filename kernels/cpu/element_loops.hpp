#pragma once

// The loops of elementwise.cpp, for vectors of any width. Included by elementwise.cpp and, compiled
// for larger vectors, by loops_avx512.cpp. All functions have internal linkage: if two files
// compile an inline function for different processors, the linker keeps only one of them.

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <array>
#include <cmath>

namespace troupe::cpu {

/// The functions of an operation.
template <class T>
struct element_row {
  operation op;
  element_loop<T>* loop;
  /// out = f(x + b). In the first function b is (columns) or null, in the second (rows) or null. If
  /// the function is null, two passes are needed.
  void (*after_bias)(std::size_t, std::size_t, const T*, const T*, T*) = nullptr;
  void (*after_row_bias)(std::size_t, std::size_t, const T*, const T*, T*) = nullptr;
  bool epilogue = false;
  /// Larger vectors help. The others wait for memory.
  bool costly = false;
};

namespace {

/// `out` may be an operand: element i is read before it is written.
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

// f(x, factor), f(x, y, factor), f(x, y, z, factor)

template <class T, class F>
constexpr element_row<T> unary(operation op, F) {
  return {op, [](std::size_t n, const T* a, const T*, const T*, T factor, T* out) {
            map(n, a, out, [factor](T x) { return F{}(x, factor); });
          }};
}

template <class T, class F>
constexpr element_row<T> binary(operation op, F) {
  return {op, [](std::size_t n, const T* a, const T* b, const T*, T factor, T* out) {
            map(n, a, b, out, [factor](T x, T y) { return F{}(x, y, factor); });
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
    map_rows(rows, columns, x, b, out, [](T v) { return F{}(v, T(1)); });
  };
  row.after_row_bias = [](std::size_t rows, std::size_t columns, const T* x, const T* b, T* out) {
    map_with_row_bias(rows, columns, x, b, out, [](T v) { return F{}(v, T(1)); });
  };
  row.epilogue = true;
  return row;
}

/// The derivative of an activation, times the result of the product. The second operand is that of
/// the epilogue.
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

template <class T>
const element_row<T>* element_rows() {
  using op = operation;
  static constexpr auto table = [] {
    std::array<element_row<T>, operation_count> result{};
    for (const auto& row : {
           binary<T>(op::add, [](T x, T y, T) { return x + y; }),
           binary<T>(op::subtract, [](T x, T y, T) { return x - y; }),
           binary<T>(op::multiply, [](T x, T y, T) { return x * y; }),
           binary<T>(op::divide, [](T x, T y, T) { return x / y; }),
           unary<T>(op::scale, [](T x, T factor) { return factor * x; }),
           unary<T>(op::offset, [](T x, T factor) { return x + factor; }),
           costly(unary<T>(op::exp, [](T x, T) { return cpu::exp(x); })),
           costly(unary<T>(op::log, [](T x, T) { return cpu::log(x); })),
           unary<T>(op::square_root, [](T x, T) { return std::sqrt(x); }),
           unary<T>(op::absolute, [](T x, T) { return std::abs(x); }),
           unary<T>(op::sign, [](T x, T) { return cpu::sign(x); }),
           costly(unary<T>(op::erf, [](T x, T) { return cpu::erf(x); })),
           costly(unary<T>(op::gelu, [](T x, T) { return cpu::gelu(x); })),
           costly(unary<T>(op::softplus, [](T x, T) { return cpu::softplus(x); })),
           activation<T>(op::relu, [](T x, T) { return cpu::relu(x); }),
           costly(activation<T>(op::tanh, [](T x, T) { return cpu::tanh(x); })),
           costly(activation<T>(op::sigmoid, [](T x, T) { return cpu::sigmoid(x); })),
           unary<T>(op::leaky_relu, [](T x, T factor) { return x > T(0) ? x : factor * x; }),
           derivative<T>(op::relu_gradient, [](T x, T y, T) { return cpu::relu_gradient(x, y); }),
           derivative<T>(op::tanh_gradient, [](T x, T y, T) { return cpu::tanh_gradient(x, y); }),
           derivative<T>(op::sigmoid_gradient,
                         [](T x, T y, T) { return cpu::sigmoid_gradient(x, y); }),
           binary<T>(op::leaky_relu_gradient,
                     [](T x, T y, T factor) { return cpu::leaky_relu_gradient(x, y, factor); }),
           costly(
             binary<T>(op::gelu_gradient, [](T x, T y, T) { return cpu::gelu_gradient(x, y); })),
           binary<T>(op::maximum, [](T x, T y, T) { return cpu::maximum(x, y); }),
           binary<T>(op::minimum, [](T x, T y, T) { return cpu::minimum(x, y); }),
           unary<T>(op::at_least, [](T x, T factor) { return x < factor ? factor : x; }),
           unary<T>(op::at_most, [](T x, T factor) { return x > factor ? factor : x; }),
           binary<T>(op::greater, [](T x, T y, T) { return cpu::greater(x, y); }),
           unary<T>(op::above, [](T x, T factor) { return cpu::above(x, factor); }),
           // Within a chain. Alone, executor_dense.cpp runs it.
           unary<T>(op::cast, [](T x, T) { return x; }),
           ternary<T>(op::select, [](T m, T x, T y, T) { return cpu::select(m, x, y); }),
         })
      result[static_cast<std::size_t>(row.op)] = row;
    return result;
  }();
  return &table[0];
}

} // namespace

} // namespace troupe::cpu
