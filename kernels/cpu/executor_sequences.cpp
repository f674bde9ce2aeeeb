#include "kernels/cpu/executor_state.hpp"

#include "kernels/cpu/gemm.hpp"

#include <array>
#include <span>

// Operations on sequences.

namespace troupe {

/// transpose, slice, place, concat: the outer dimensions are divided among threads.
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
    const auto inner = extents(x.output, 1, rank);
    split_rows(sizes[0], inner, [&](range part, std::size_t) {
      auto mine = sizes;
      mine[0] = part.size();
      cpu::gather_strided(std::span{mine}.first(rank), std::span{strides}.first(rank),
                          in + part.begin * strides[0], out + part.begin * inner);
    });
    return;
  }
  // Dimensions behind the axis move together; dimensions before it are rows.
  const auto axis = x.axes[0];
  const auto outer = extents(x.output, 0, axis);
  const auto inner = extents(x.output, axis + 1, rank);
  const auto width = extent(x.output, axis) * inner;
  const auto input_width = extent(x.inputs[0], axis) * inner;
  split_rows(outer, width, [&](range part, std::size_t) {
    const auto count = part.size();
    T* const to = out + part.begin * width;
    const T* const from = in + part.begin * input_width;
    if (x.op == operation::concat) {
      std::size_t begin = 0;
      for (const auto& input : x.inputs) {
        const auto size = extent(input, axis) * inner;
        cpu::copy_rows(count, size, read(input) + part.begin * size, size, to + begin, width);
        begin += size;
      }
    } else if (x.op == operation::slice) {
      cpu::copy_rows(count, width, from + x.axes[1] * inner, input_width, to, width);
    } else {
      std::fill_n(to, count * width, T(0));
      cpu::copy_rows(count, input_width, from, input_width, to + x.axes[1] * inner, width);
    }
  });
}

template <class T>
void executor<T>::state::execute_products(const instruction& x) {
  const auto rank = x.output.shape.rank();
  const auto m = extent(x.output, rank - 2);
  const auto n = extent(x.output, rank - 1);
  const auto k = extent(x.inputs[0], x.transpose_a ? rank - 2 : rank - 1);
  split(extents(x.output, 0, rank - 2), least_products / (m * n * k + 1) + 1,
        [&](range part, std::size_t thread) {
          for (auto i = part.begin; i < part.end; ++i) {
            cpu::matrix<T> left{read(x.inputs[0]) + i * m * k, x.transpose_a ? m : k, 1};
            cpu::matrix<T> right{read(x.inputs[1]) + i * k * n, x.transpose_b ? k : n, 1};
            if (x.transpose_a)
              left = left.transposed();
            if (x.transpose_b)
              right = right.transposed();
            cpu::gemm<T>(m, n, k, left, right, write(x.output) + i * m * n, n, scratch_of(thread));
          }
        });
}

/// Samples are independent: each thread goes through time with its own samples.
template <class T>
void executor<T>::state::execute_recurrence(const instruction& x) {
  const auto size = recurrence_of(x, rows);
  const auto step = size.gates() * size.hidden * size.hidden * size.time;
  split(rows, least_products / (step + 1) + 1, [&](range part, std::size_t thread) {
    auto mine = size;
    mine.batch = part.size();
    const auto begin = [&](const operand& y) { return part.begin * extents(y, 1, 3); };
    const T* const a = read(x.inputs[0]) + begin(x.inputs[0]);
    T* const out = write(x.output) + begin(x.output);
    if (x.op == operation::recurrent)
      cpu::recurrent(mine, a, read(x.inputs[1]), x.inputs.size() > 2 ? read(x.inputs[2]) : nullptr,
                     out, scratch_of(thread));
    else
      cpu::recurrent_gradient(mine, a, read(x.inputs[1]) + begin(x.inputs[1]), read(x.inputs[2]),
                              out, scratch_of(thread));
  });
}

template <class T>
void executor<T>::state::execute_sequence(const instruction& x) {
  const T* const a = x.inputs[0].type == dtype::int32 ? nullptr : read(x.inputs[0]);
  T* const out = write(x.output);
  const auto size = matrix_extent(x.output.shape, rows);
  const auto columns = size.columns;
  /// f(rows, first element)
  const auto by_rows = [&](auto f) {
    split_rows(size.rows, columns, [&](range part, std::size_t) { f(part, part.begin * columns); });
  };
  switch (x.op) {
  case operation::batched_matmul:
    execute_products(x);
    break;
  case operation::multiply_rows:
    by_rows([&](range part, std::size_t i) {
      cpu::multiply_rows(part.size(), columns, a + i, read(x.inputs[1]), out + i);
    });
    break;
  case operation::embedding:
    by_rows([&](range part, std::size_t i) {
      cpu::embedding(std::span{labels(x.inputs[1]) + part.begin, part.size()},
                     extent(x.inputs[0], 0), columns, a, out + i);
    });
    break;
  case operation::embedding_gradient: {
    const std::span ids{labels(x.inputs[1]), elements(x.inputs[1])};
    split(columns, least_elements / (ids.size() + 1) + 16, [&](range part, std::size_t) {
      cpu::embedding_gradient(ids, size.rows, columns, part, a, out);
    });
    break;
  }
  case operation::normalize_rows:
    by_rows([&](range part, std::size_t i) {
      cpu::normalize_rows(part.size(), columns, a + i, x.factor, out + i);
    });
    break;
  case operation::normalize_rows_gradient:
    by_rows([&](range part, std::size_t i) {
      cpu::normalize_rows_gradient(part.size(), columns, a + i, read(x.inputs[1]) + i, x.factor,
                                   out + i);
    });
    break;
  case operation::causal_softmax: {
    const auto square = columns * columns;
    split_rows(elements(x.output) / std::max<std::size_t>(square, 1), square,
               [&](range part, std::size_t) {
                 const auto i = part.begin * square;
                 cpu::causal_softmax(part.size(), columns, a + i, out + i);
               });
    break;
  }
  case operation::recurrent:
  case operation::recurrent_gradient:
    execute_recurrence(x);
    break;
  default:
    execute_moves(x);
    break;
  }
}

template void executor<float>::state::execute_sequence(const instruction&);
template void executor<double>::state::execute_sequence(const instruction&);

} // namespace troupe
