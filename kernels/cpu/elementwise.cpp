#include "kernels/cpu/elementwise.hpp"

#include "kernels/cpu/element_loops.hpp"
#include "kernels/cpu/gemm_avx512.hpp"
#include "kernels/cpu/loops_avx512.hpp"
#include "kernels/cpu/sums.hpp"
#include "kernels/cpu/vectorize.hpp"

#include <algorithm>
#include <type_traits>

namespace troupe::cpu {

namespace {

template <class T>
const element_row<T>& element_row_of(operation op) {
  const auto i = static_cast<std::size_t>(op);
  const auto& row = element_rows<T>()[i];
  if constexpr (std::is_same_v<T, float>)
    if (row.costly && has_wide_vectors())
      return wide_element_rows()[i];
  return row;
}

constexpr auto same = [](auto v) { return v; };

} // namespace

template <class T>
element_loop<T>* loop_of(operation op) noexcept {
  return element_row_of<T>(op).loop;
}

bool is_epilogue(operation op) noexcept {
  return element_row_of<float>(op).epilogue;
}

template <class T>
void add_bias(std::size_t rows, std::size_t columns, const T* x, const T* b,
              std::optional<operation> after, const T* operand, T* out) {
  const auto* const row = after ? &element_row_of<T>(*after) : nullptr;
  if (row != nullptr && row->after_bias != nullptr)
    return row->after_bias(rows, columns, x, b, out);
  if (b != nullptr)
    map_rows(rows, columns, x, b, out, same);
  if (row != nullptr)
    row->loop(rows * columns, b != nullptr ? out : x, operand, nullptr, T(1), out);
}

template <class T>
void add_row_bias(std::size_t rows, std::size_t columns, const T* x, const T* b,
                  std::optional<operation> after, const T* operand, T* out) {
  const auto* const row = after ? &element_row_of<T>(*after) : nullptr;
  if (row != nullptr && row->after_row_bias != nullptr)
    return row->after_row_bias(rows, columns, x, b, out);
  if (b != nullptr)
    map_with_row_bias(rows, columns, x, b, out, same);
  if (row != nullptr)
    row->loop(rows * columns, b != nullptr ? out : x, operand, nullptr, T(1), out);
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
      loop_of<T>(x.op)(count, at(x.a), at(x.b), at(x.c), static_cast<T>(x.factor), result);
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

// NOLINTBEGIN(bugprone-macro-parentheses): types in declarations must not be in parentheses
#define TROUPE_INSTANTIATE(T)                                                                      \
  template element_loop<T>* loop_of<T>(operation) noexcept;                                        \
  template void elementwise(std::span<const element_step>, std::size_t, std::span<const T*>,       \
                            std::size_t, T*, T*);                                                  \
  template void add_bias(std::size_t, std::size_t, const T*, const T*, std::optional<operation>,   \
                         const T*, T*);                                                            \
  template void add_row_bias(std::size_t, std::size_t, const T*, const T*,                         \
                             std::optional<operation>, const T*, T*);                              \
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
