#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/operation_table.hpp"
#include "kernels/cpu/sequences.hpp"

#include <algorithm>
#include <array>
#include <span>

// Operations on sequences.

namespace troupe::cpu {

namespace {

/// Transposes a tensor. The threads divide dimension 0 of the result among them.
template <class T>
void run_transpose(const step<T>& s) {
  const auto& y = s.x.output;
  const auto rank = y.shape.rank();
  std::array<std::size_t, most_axes> sizes{};
  std::array<std::size_t, most_axes> strides{};
  for (std::size_t i = 0; i < rank; ++i) {
    sizes[i] = s.run.extent(y, i);
    strides[i] = s.run.extents(s.x.inputs[0], s.x.axes[i] + 1, rank);
  }
  const auto inner = s.run.extents(y, 1, rank);
  s.run.split_rows(sizes[0], inner, [&](range part, std::size_t) {
    auto mine = sizes;
    mine[0] = part.size();
    gather_strided(std::span{mine}.first(rank), std::span{strides}.first(rank),
                   s.a + part.begin * strides[0], s.out + part.begin * inner);
  });
}

/// The sizes of an operation that moves elements along one axis of a tensor. The dimensions before
/// the axis together are the rows, which are divided among threads. Each position of the axis has
/// `inner` elements, from the dimensions after the axis. They are copied together.
template <class T>
struct move_step {
  const step<T>& s;
  std::size_t axis = s.x.axes[0];
  std::size_t inner = s.run.extents(s.x.output, axis + 1, s.x.output.shape.rank());
  /// Width of a row of the result.
  std::size_t width = width_of(s.x.output);

  std::size_t width_of(const operand& x) const { return s.run.extent(x, axis) * inner; }
  /// For slice and place: the position, within a row, of the first element that is copied.
  std::size_t begin() const { return s.x.axes[1] * inner; }
  /// Divides the rows among threads. Calls f(range of rows, pointer to the first of these rows in
  /// the result).
  template <class F>
  void each(F f) const {
    s.run.split_rows(s.run.extents(s.x.output, 0, axis), width,
                     [&](range part, std::size_t) { f(part, s.out + part.begin * width); });
  }
};

template <class T>
void run_slice(const step<T>& s) {
  const move_step<T> move{s};
  const auto from = move.width_of(s.x.inputs[0]);
  move.each([&](range part, T* to) {
    copy_rows(part.size(), move.width, s.a + part.begin * from + move.begin(), from, to,
              move.width);
  });
}

template <class T>
void run_place(const step<T>& s) {
  const move_step<T> move{s};
  const auto from = move.width_of(s.x.inputs[0]);
  move.each([&](range part, T* to) {
    std::fill_n(to, part.size() * move.width, T(0));
    copy_rows(part.size(), from, s.a + part.begin * from, from, to + move.begin(), move.width);
  });
}

template <class T>
void run_reverse(const step<T>& s) {
  const move_step<T> move{s};
  move.each([&](range part, T* to) {
    const T* const from = s.a + part.begin * move.width;
    for (std::size_t i = 0; i < move.width; i += move.inner)
      copy_rows(part.size(), move.inner, from + i, move.width, to + (move.width - move.inner - i),
                move.width);
  });
}

template <class T>
void run_concat(const step<T>& s) {
  const move_step<T> move{s};
  move.each([&](range part, T* to) {
    for (const auto& input : s.x.inputs) {
      const auto size = move.width_of(input);
      copy_rows(part.size(), size, s.run.read(input) + part.begin * size, size, to, move.width);
      to += size;
    }
  });
}

template <class T>
void run_blend(const step<T>& s) {
  const move_step<T> move{s};
  const blend_sizes size{s.run.extent(s.x.inputs[0], move.axis),
                         s.run.extent(s.x.output, move.axis), s.run.extent(s.x.inputs[1], 1),
                         move.inner};
  move.each([&](range part, T* to) {
    blend(part.size(), size, s.a + part.begin * size.from * size.inner, s.b, to);
  });
}

template <class T>
void run_batched_matmul(const step<T>& s) {
  const auto& x = s.x;
  const auto rank = x.output.shape.rank();
  const auto m = s.run.extent(x.output, rank - 2);
  const auto n = s.run.extent(x.output, rank - 1);
  const auto k = s.run.extent(x.inputs[0], x.transpose_a ? rank - 2 : rank - 1);
  s.run.split(s.run.extents(x.output, 0, rank - 2), least_products / (m * n * k + 1) + 1,
              [&](range part, std::size_t thread) {
                for (auto i = part.begin; i < part.end; ++i) {
                  matrix<T> left{s.a + i * m * k, x.transpose_a ? m : k, 1};
                  matrix<T> right{s.b + i * k * n, x.transpose_b ? k : n, 1};
                  if (x.transpose_a)
                    left = left.transposed();
                  if (x.transpose_b)
                    right = right.transposed();
                  gemm<T>(m, n, k, left, right, s.out + i * m * n, n, s.run.scratch_of(thread));
                }
              });
}

recurrence recurrence_of(const instruction& x, std::size_t weight, std::size_t rows) {
  return {x.cell, rows, static_cast<std::size_t>(x.output.shape[1]),
          static_cast<std::size_t>(x.inputs[weight].shape.last())};
}

/// Divides the samples among threads. Samples are independent, so each thread computes all time
/// steps of its own samples. Calls f(sizes for these samples, scratch space, g). g(x) is the
/// position, in operand x, of the first element of these samples.
template <class T, class F>
void by_sample(const step<T>& s, std::size_t weight, F f) {
  const auto size = recurrence_of(s.x, weight, s.run.rows);
  const auto work = size.gates() * size.hidden * size.hidden * size.time;
  s.run.split(s.run.rows, least_products / (work + 1) + 1, [&](range part, std::size_t thread) {
    auto mine = size;
    mine.batch = part.size();
    f(mine, s.run.scratch_of(thread),
      [&](const operand& y) { return part.begin * s.run.extents(y, 1, 3); });
  });
}

template <class T>
void run_recurrent(const step<T>& s) {
  by_sample(s, 1, [&](const recurrence& size, T* scratch, auto begin) {
    recurrent(size, s.a + begin(s.x.inputs[0]), s.b, s.operand(2), s.out + begin(s.x.output),
              scratch);
  });
}

template <class T>
void run_recurrent_gradient(const step<T>& s) {
  by_sample(s, 2, [&](const recurrence& size, T* scratch, auto begin) {
    recurrent_gradient(size, s.a + begin(s.x.inputs[0]), s.b + begin(s.x.inputs[1]), s.operand(2),
                       s.out + begin(s.x.output), scratch);
  });
}

template <class T, std::size_t weight>
std::size_t recurrent_scratch(const instruction& x, std::size_t rows) {
  return recurrent_scratch_elements<T>(recurrence_of(x, weight, rows));
}

/// Divides the heads of all samples among threads. Calls f(range of heads, scratch space).
template <class T, class F>
void by_head(const step<T>& s, const attention_layout& size, F f) {
  const auto products = 2 * size.queries * size.keys * size.width;
  s.run.split(size.batch * size.heads, least_products / (products + 1) + 1,
              [&](range part, std::size_t thread) { f(part, s.run.scratch_of(thread)); });
}

template <class T>
attention_inputs<T> attention_operands_of(const step<T>& s) {
  const auto& how = s.x.attention;
  const auto first = attention_layout::first_operand(s.x);
  const auto at = [&](const attention_operands::part& part) {
    return s.operand(first + part.operand);
  };
  return {at(how.queries), at(how.keys), at(how.values)};
}

template <class T>
void run_attention(const step<T>& s) {
  const attention_layout size(s.x, s.run.rows);
  by_head(s, size, [&](range part, T* scratch) {
    attention(size, part, attention_operands_of(s), s.out, s.run.write(s.x.more[0]), scratch);
  });
}

template <class T>
void run_attention_gradient(const step<T>& s) {
  const attention_layout size(s.x, s.run.rows);
  const auto& how = s.x.attention;
  const auto at = [&](const attention_operands::part& part) {
    return part.operand == 0 ? s.out : s.run.write(s.x.more[part.operand - 1]);
  };
  by_head(s, size, [&](range part, T* scratch) {
    attention_gradient<T>(size, part, attention_operands_of(s), s.a, s.b, s.operand(2),
                          {at(how.queries), at(how.keys), at(how.values)}, scratch);
  });
}

template <class T>
std::size_t attention_scratch(const instruction& x, std::size_t rows) {
  return attention_scratch_elements<T>(attention_layout(x, rows));
}

} // namespace

template <class T>
std::span<const operation_row<T>> sequence_rows() {
  using op = operation;
  using s = const step<T>&;
  static const operation_row<T> rows[] = {
    {op::transpose, run_transpose<T>},
    {op::batched_matmul, run_batched_matmul<T>},
    {op::slice, run_slice<T>},
    {op::place, run_place<T>},
    {op::reverse, run_reverse<T>},
    {op::concat, run_concat<T>},
    {op::blend, run_blend<T>},
    {op::embedding,
     [](s i) {
       const auto* const ids = i.run.labels(i.x.inputs[1]);
       const auto entries = i.run.extent(i.x.inputs[0], 0);
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         i.run.for_rows(i.x.inputs[0], [&](range rows, const T* table) {
           embedding(std::span{ids + part.begin, part.size()}, entries, rows, columns, table,
                     i.out + begin);
         });
       });
     }},
    {op::embedding_gradient,
     [](s i) {
       const auto size = i.matrix(i.x.output);
       const std::span ids{i.run.labels(i.x.inputs[1]), i.run.elements(i.x.inputs[1])};
       i.run.split(size.columns, least_elements / (ids.size() + 1) + 16,
                   [&](range part, std::size_t) {
                     embedding_gradient(ids, size.rows, size.columns, part, i.a, i.out,
                                        i.run.is_cleared(i.x.output));
                   });
     }},
    {op::normalize_rows,
     [](s i) {
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         normalize_rows(part.size(), columns, i.a + begin, i.x.factor, i.out + begin);
       });
     }},
    {op::normalize_rows_gradient,
     [](s i) {
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         normalize_rows_gradient(part.size(), columns, i.a + begin, i.b + begin, i.x.factor,
                                 i.out + begin);
       });
     }},
    {op::multiply_rows,
     [](s i) {
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         multiply_rows(part.size(), columns, i.a + begin, i.b, i.out + begin);
       });
     }},
    {op::causal_softmax,
     [](s i) {
       const auto columns = i.matrix(i.x.output).columns;
       const auto square = columns * columns;
       i.run.split_rows(i.elements() / std::max<std::size_t>(square, 1), square,
                        [&](range part, std::size_t) {
                          const auto begin = part.begin * square;
                          causal_softmax(part.size(), columns, i.a + begin, i.out + begin);
                        });
     }},
    {op::attention, run_attention<T>, attention_scratch<T>},
    {op::attention_gradient, run_attention_gradient<T>, attention_scratch<T>},
    {op::recurrent, run_recurrent<T>, recurrent_scratch<T, 1>},
    {op::recurrent_gradient, run_recurrent_gradient<T>, recurrent_scratch<T, 2>},
  };
  return rows;
}

template std::span<const operation_row<float>> sequence_rows();
template std::span<const operation_row<double>> sequence_rows();

} // namespace troupe::cpu
