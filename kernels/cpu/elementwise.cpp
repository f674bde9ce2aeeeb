#include "kernels/cpu/elementwise.hpp"

#include "kernels/cpu/math.hpp"
#include "kernels/cpu/sums.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::cpu {

namespace {

/// The loops of this file. `out` may be an operand: element i is read before it is written.
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

operation operation_of(epilogue derivative) {
  return derivative == epilogue::relu_gradient ? operation::relu_gradient
    : derivative == epilogue::tanh_gradient    ? operation::tanh_gradient
                                               : operation::sigmoid_gradient;
}

} // namespace

template <class T>
void unary(operation op, std::size_t n, const T* x, T factor, T* out) {
  switch (op) {
  case operation::scale:
    map(n, x, out, [factor](T v) { return factor * v; });
    break;
  case operation::offset:
    map(n, x, out, [factor](T v) { return v + factor; });
    break;
  case operation::exp:
    map(n, x, out, [](T v) { return cpu::exp(v); });
    break;
  case operation::log:
    map(n, x, out, [](T v) { return cpu::log(v); });
    break;
  case operation::square_root:
    map(n, x, out, [](T v) { return std::sqrt(v); });
    break;
  case operation::absolute:
    map(n, x, out, [](T v) { return std::abs(v); });
    break;
  case operation::sign:
    map(n, x, out, [](T v) { return cpu::sign(v); });
    break;
  case operation::erf:
    map(n, x, out, [](T v) { return cpu::erf(v); });
    break;
  case operation::gelu:
    map(n, x, out, [](T v) { return cpu::gelu(v); });
    break;
  case operation::softplus:
    map(n, x, out, [](T v) { return cpu::softplus(v); });
    break;
  case operation::relu:
    map(n, x, out, [](T v) { return cpu::relu(v); });
    break;
  case operation::leaky_relu:
    map(n, x, out, [factor](T v) { return v > T(0) ? v : factor * v; });
    break;
  case operation::tanh:
    map(n, x, out, [](T v) { return cpu::tanh(v); });
    break;
  case operation::sigmoid:
    map(n, x, out, [](T v) { return cpu::sigmoid(v); });
    break;
  case operation::at_least:
    map(n, x, out, [factor](T v) { return v < factor ? factor : v; });
    break;
  case operation::at_most:
    map(n, x, out, [factor](T v) { return v > factor ? factor : v; });
    break;
  case operation::above:
    map(n, x, out, [factor](T v) { return cpu::above(v, factor); });
    break;
  default:
    break;
  }
}

template <class T>
void binary(operation op, std::size_t n, const T* a, const T* b, T factor, T* out) {
  switch (op) {
  case operation::add:
    map(n, a, b, out, [](T x, T y) { return x + y; });
    break;
  case operation::subtract:
    map(n, a, b, out, [](T x, T y) { return x - y; });
    break;
  case operation::multiply:
    map(n, a, b, out, [](T x, T y) { return x * y; });
    break;
  case operation::divide:
    map(n, a, b, out, [](T x, T y) { return x / y; });
    break;
  case operation::leaky_relu_gradient:
    map(n, a, b, out, [factor](T x, T y) { return cpu::leaky_relu_gradient(x, y, factor); });
    break;
  case operation::relu_gradient:
    map(n, a, b, out, [](T x, T y) { return cpu::relu_gradient(x, y); });
    break;
  case operation::tanh_gradient:
    map(n, a, b, out, [](T x, T y) { return cpu::tanh_gradient(x, y); });
    break;
  case operation::gelu_gradient:
    map(n, a, b, out, [](T x, T y) { return cpu::gelu_gradient(x, y); });
    break;
  case operation::sigmoid_gradient:
    map(n, a, b, out, [](T x, T y) { return cpu::sigmoid_gradient(x, y); });
    break;
  case operation::maximum:
    map(n, a, b, out, [](T x, T y) { return cpu::maximum(x, y); });
    break;
  case operation::minimum:
    map(n, a, b, out, [](T x, T y) { return cpu::minimum(x, y); });
    break;
  case operation::greater:
    map(n, a, b, out, [](T x, T y) { return cpu::greater(x, y); });
    break;
  default:
    break;
  }
}

template <class T>
void ternary(operation op, std::size_t n, const T* a, const T* b, const T* c, T* out) {
  if (op == operation::select)
    map(n, a, b, c, out, [](T m, T x, T y) { return cpu::select(m, x, y); });
}

template <class T>
void add_bias(std::size_t rows, std::size_t columns, const T* x, const T* b, epilogue after,
              const T* operand, T* out) {
  switch (after) {
  case epilogue::none:
    if (b != nullptr)
      map_rows(rows, columns, x, b, out, [](T v) { return v; });
    return;
  case epilogue::relu:
    map_rows(rows, columns, x, b, out, [](T v) { return cpu::relu(v); });
    return;
  case epilogue::tanh:
    map_rows(rows, columns, x, b, out, [](T v) { return cpu::tanh(v); });
    return;
  case epilogue::sigmoid:
    map_rows(rows, columns, x, b, out, [](T v) { return cpu::sigmoid(v); });
    return;
  default:
    break;
  }
  if (b != nullptr)
    map_rows(rows, columns, x, b, out, [](T v) { return v; });
  binary(operation_of(after), rows * columns, b != nullptr ? out : x, operand, T(1), out);
}

template <class T>
void add_row_bias(std::size_t rows, std::size_t columns, const T* x, const T* b, epilogue after,
                  const T* operand, T* out) {
  const auto finish = [&](auto f) {
    for (std::size_t r = 0; r < rows; ++r) {
      const T bias = b != nullptr ? b[r] : T(0);
      map(columns, x + r * columns, out + r * columns, [f, bias](T v) { return f(v + bias); });
    }
  };
  switch (after) {
  case epilogue::none:
    if (b != nullptr)
      finish([](T v) { return v; });
    return;
  case epilogue::relu:
    return finish([](T v) { return cpu::relu(v); });
  case epilogue::tanh:
    return finish([](T v) { return cpu::tanh(v); });
  case epilogue::sigmoid:
    return finish([](T v) { return cpu::sigmoid(v); });
  default:
    // Derivatives of activations follow products without a bias.
    return binary(operation_of(after), rows * columns, x, operand, T(1), out);
  }
}

template <class T>
void elementwise(std::span<const element_step> program, std::size_t n,
                 std::span<const T*> registers, std::size_t inputs, T* temporaries, T* out) {
  const auto temporary = [&](std::size_t i) {
    return temporaries + (i - inputs) * elementwise_block;
  };
  for (std::size_t i = inputs; i < registers.size(); ++i)
    registers[i] = temporary(i);
  for (std::size_t begin = 0; begin < n; begin += elementwise_block) {
    const auto count = std::min(elementwise_block, n - begin);
    for (const auto& x : program) {
      const auto at = [&](std::size_t i) { return registers[i] + (i < inputs ? begin : 0); };
      T* const result = &x == &program.back() ? out + begin : temporary(x.result);
      switch (elementwise_arity(x.op)) {
      case 1:
        unary(x.op, count, at(x.a), static_cast<T>(x.factor), result);
        break;
      case 2:
        binary(x.op, count, at(x.a), at(x.b), static_cast<T>(x.factor), result);
        break;
      default:
        ternary(x.op, count, at(x.a), at(x.b), at(x.c), result);
      }
    }
  }
}

template <class T>
double sum(std::size_t n, const T* x) {
  return sum_of(n, x);
}

template <class T>
void sum_leading(std::size_t rows, std::size_t columns, std::size_t stride, const T* x, T* out) {
  std::fill_n(out, columns, T(0));
  for (std::size_t r = 0; r < rows; ++r) {
    const T* row = x + r * stride;
    TROUPE_INDEPENDENT
    for (std::size_t j = 0; j < columns; ++j)
      out[j] += row[j];
  }
}

template <class T>
void sum_last(std::size_t rows, std::size_t columns, const T* x, T* out) {
  for (std::size_t r = 0; r < rows; ++r)
    out[r] = static_cast<T>(sum(columns, x + r * columns));
}

template <class T>
void broadcast_leading(std::size_t rows, std::size_t columns, const T* x, T* out) {
  for (std::size_t r = 0; r < rows; ++r)
    std::copy_n(x, columns, out + r * columns);
}

template <class T>
void broadcast_last(std::size_t rows, std::size_t columns, const T* x, T* out) {
  for (std::size_t r = 0; r < rows; ++r)
    std::fill_n(out + r * columns, columns, x[r]);
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type in a declaration takes none
#define TROUPE_INSTANTIATE(T)                                                                      \
  template void unary(operation, std::size_t, const T*, T, T*);                                    \
  template void binary(operation, std::size_t, const T*, const T*, T, T*);                         \
  template void ternary(operation, std::size_t, const T*, const T*, const T*, T*);                 \
  template void elementwise(std::span<const element_step>, std::size_t, std::span<const T*>,       \
                            std::size_t, T*, T*);                                                  \
  template void add_bias(std::size_t, std::size_t, const T*, const T*, epilogue, const T*, T*);    \
  template void add_row_bias(std::size_t, std::size_t, const T*, const T*, epilogue, const T*,     \
                             T*);                                                                  \
  template double sum(std::size_t, const T*);                                                      \
  template void sum_leading(std::size_t, std::size_t, std::size_t, const T*, T*);                  \
  template void sum_last(std::size_t, std::size_t, const T*, T*);                                  \
  template void broadcast_leading(std::size_t, std::size_t, const T*, T*);                         \
  template void broadcast_last(std::size_t, std::size_t, const T*, T*);
// NOLINTEND(bugprone-macro-parentheses)

TROUPE_INSTANTIATE(float)
TROUPE_INSTANTIATE(double)
#undef TROUPE_INSTANTIATE

} // namespace troupe::cpu
