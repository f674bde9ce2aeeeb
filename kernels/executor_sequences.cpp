#include "kernels/executor_state.hpp"

#include "kernels/cpu/gemm.hpp"

#include <array>
#include <span>

// Operations on sequences.

namespace troupe {

template <class T>
std::size_t executor<T>::state::extent(const operand& x, std::size_t axis) const {
  return x.shape[axis] == shape::batch ? rows : static_cast<std::size_t>(x.shape[axis]);
}

template <class T>
std::size_t executor<T>::state::extents(const operand& x, std::size_t first,
                                        std::size_t last) const {
  std::size_t result = 1;
  for (auto axis = first; axis < last; ++axis)
    result *= extent(x, axis);
  return result;
}

/// transpose, slice, place, concat.
template <class T>
void executor<T>::state::execute_moves(const instruction& x) {
  const T* const in = read(x.inputs[0]);
  T* const out = write(x.output);
  const auto rank = x.output.shape.rank();
  if (x.op == operation::transpose) {
    std::array<std::size_t, cpu::most_axes> sizes{};
    std::array<std::size_t, cpu::most_axes> strides{};
    for (std::size_t i = 0; i < rank; ++i) {
      sizes[i] = extent(x.output, i);
      strides[i] = extents(x.inputs[0], x.axes[i] + 1, rank);
    }
    cpu::gather_strided(std::span{sizes}.first(rank), std::span{strides}.first(rank), in, out);
    return;
  }
  // Whatever lies behind the axis moves as one; what lies before it are rows.
  const auto axis = x.axes[0];
  const auto outer = extents(x.output, 0, axis);
  const auto inner = extents(x.output, axis + 1, rank);
  const auto width = extent(x.output, axis) * inner;
  if (x.op == operation::concat) {
    std::size_t begin = 0;
    for (const auto& input : x.inputs) {
      const auto part = extent(input, axis) * inner;
      cpu::copy_rows(outer, part, read(input), part, out + begin, width);
      begin += part;
    }
    return;
  }
  const auto input_width = extent(x.inputs[0], axis) * inner;
  if (x.op == operation::slice) {
    cpu::copy_rows(outer, width, in + x.axes[1] * inner, input_width, out, width);
  } else {
    std::fill_n(out, outer * width, T(0));
    cpu::copy_rows(outer, input_width, in, input_width, out + x.axes[1] * inner, width);
  }
}

template <class T>
void executor<T>::state::execute_products(const instruction& x) {
  const auto rank = x.output.shape.rank();
  const auto m = extent(x.output, rank - 2);
  const auto n = extent(x.output, rank - 1);
  const auto k = extent(x.inputs[0], x.transpose_a ? rank - 2 : rank - 1);
  for (std::size_t i = 0; i < extents(x.output, 0, rank - 2); ++i) {
    cpu::matrix<T> left{read(x.inputs[0]) + i * m * k, x.transpose_a ? m : k, 1};
    cpu::matrix<T> right{read(x.inputs[1]) + i * k * n, x.transpose_b ? k : n, 1};
    if (x.transpose_a)
      left = left.transposed();
    if (x.transpose_b)
      right = right.transposed();
    cpu::gemm<T>(m, n, k, left, right, write(x.output) + i * m * n, n, scratch.get());
  }
}

template <class T>
void executor<T>::state::execute_sequence(const instruction& x) {
  const T* const a = x.inputs[0].type == dtype::int32 ? nullptr : read(x.inputs[0]);
  T* const out = write(x.output);
  const auto size = matrix_extent(x.output.shape, rows);
  const auto ids = [&] { return std::span{labels(x.inputs[1]), elements(x.inputs[1])}; };
  switch (x.op) {
  case operation::batched_matmul:
    execute_products(x);
    break;
  case operation::multiply_rows:
    cpu::multiply_rows(size.rows, size.columns, a, read(x.inputs[1]), out);
    break;
  case operation::embedding:
    cpu::embedding(ids(), extent(x.inputs[0], 0), size.columns, a, out);
    break;
  case operation::embedding_gradient:
    cpu::embedding_gradient(ids(), size.rows, size.columns, a, out);
    break;
  case operation::normalize_rows:
    cpu::normalize_rows(size.rows, size.columns, a, x.factor, out);
    break;
  case operation::normalize_rows_gradient:
    cpu::normalize_rows_gradient(size.rows, size.columns, a, read(x.inputs[1]), x.factor, out);
    break;
  case operation::causal_softmax:
    cpu::causal_softmax(size.rows / std::max<std::size_t>(size.columns, 1), size.columns, a, out);
    break;
  case operation::recurrent:
    cpu::recurrent(recurrence_of(x, rows), a, read(x.inputs[1]),
                   x.inputs.size() > 2 ? read(x.inputs[2]) : nullptr, out, scratch.get());
    break;
  case operation::recurrent_gradient:
    cpu::recurrent_gradient(recurrence_of(x, rows), a, read(x.inputs[1]), read(x.inputs[2]), out,
                            scratch.get());
    break;
  default:
    execute_moves(x);
    break;
  }
}

template void executor<float>::state::execute_sequence(const instruction&);
template void executor<double>::state::execute_sequence(const instruction&);

} // namespace troupe
