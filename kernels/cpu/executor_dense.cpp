#include "kernels/cpu/dropout.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/losses.hpp"
#include "kernels/cpu/operation_table.hpp"
#include "kernels/cpu/sparse.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <array>
#include <span>

// Matrix products, element-wise chains, reductions and losses.

namespace troupe::cpu {

namespace {

/// Computes one part of a product c = left * b, where b may be in several pieces of memory.
/// `values` points to the piece with the rows `rows` of b. The function computes the columns
/// `columns` of c, whose rows begin `stride` elements apart.
///
/// If b is transposed, each row of b gives one column of c, and `columns` must be within `rows`.
/// Otherwise, each row of b is a term of every sum: the call with the first rows sets c, and later
/// calls add to c.
template <class T>
void multiply(const step<T>& s, std::size_t m, matrix<T> left, range rows, const T* values,
              range columns, T* c, std::size_t stride, T* scratch) {
  const auto width = s.matrix(s.x.inputs[1]).columns;
  c += columns.begin;
  if (s.x.transpose_b) {
    const matrix<T> right{values + (columns.begin - rows.begin) * width, width, 1};
    gemm<T>(m, columns.size(), width, left, right.transposed(), c, stride, scratch);
    return;
  }
  left.data += rows.begin * left.column_stride;
  gemm<T>(m, columns.size(), rows.size(), left, {values + columns.begin, width, 1}, c, stride,
          scratch, rows.begin > 0);
}

template <class T>
void run_matmul(const step<T>& s) {
  const auto& x = s.x;
  const auto a = s.matrix(x.inputs[0]);
  const auto b = s.matrix(x.inputs[1]);
  matrix<T> left{s.a, a.columns, 1};
  if (x.transpose_a)
    left = left.transposed();
  const auto m = x.transpose_a ? a.columns : a.rows;
  const auto k = x.transpose_a ? a.rows : a.columns;
  const auto n = x.transpose_b ? b.rows : b.columns;
  const T* const bias = s.run.read(x.bias);
  const T* const operand = s.run.read(x.epilogue_operand);
  const auto least = [&](std::size_t width) {
    return least_products / std::max<std::size_t>(width * k, 1) + 1;
  };
  // The result can be divided among threads by rows or by columns. Division by rows has an
  // advantage: rows usually stay on the thread that computed them. But each thread must then pack
  // the whole right operand, which takes relatively long if there are few rows.
  if (m >= 512 || m >= 2 * n) {
    // Each thread gets at least two rows, because a product with one row adds its terms in another
    // order.
    s.run.split(m, std::max<std::size_t>(least(n), 2), [&](range part, std::size_t thread) {
      T* const to = s.out + part.begin * n;
      auto mine = left;
      mine.data += part.begin * left.row_stride;
      s.run.for_rows(x.inputs[1], [&](range rows, const T* values) {
        multiply(s, part.size(), mine, rows, values, x.transpose_b ? rows : range{0, n}, to, n,
                 s.run.scratch_of(thread));
      });
      add_bias<T>(part.size(), n, to, bias, x.after,
                  operand != nullptr ? operand + part.begin * n : nullptr, to);
    });
    return;
  }
  const auto split_columns = [&](range columns, auto product) {
    s.run.split(columns.size(), least(m) + 16, [&](range some, std::size_t thread) {
      const range part{columns.begin + some.begin, columns.begin + some.end};
      product(part, s.run.scratch_of(thread));
      T* to = s.out + part.begin;
      if (part.size() == n) {
        add_bias<T>(m, n, to, bias, x.after, operand, to);
        return;
      }
      for (std::size_t r = 0; r < m; ++r, to += n)
        add_bias<T>(1, part.size(), to, bias != nullptr ? bias + part.begin : nullptr, x.after,
                    operand != nullptr ? operand + r * n + part.begin : nullptr, to);
    });
  };
  if (x.transpose_b)
    s.run.for_rows(x.inputs[1], [&](range rows, const T* values) {
      split_columns(rows, [&](range part, T* scratch) {
        multiply(s, m, left, rows, values, part, s.out, n, scratch);
      });
    });
  else
    split_columns({0, n}, [&](range part, T* scratch) {
      s.run.for_rows(x.inputs[1], [&](range rows, const T* values) {
        multiply(s, m, left, rows, values, part, s.out, n, scratch);
      });
    });
}

/// Runs one of the two products with a sparse matrix.
template <class T>
void run_sparse(const step<T>& s) {
  const auto& features = s.x.inputs[0];
  const auto& weight = s.x.inputs[1];
  const auto height = static_cast<std::size_t>(features.shape.last());
  const weight_rows<T> whole{weight.index, {0, height}, s.b};
  const auto pieces = s.run.parts_of(weight);
  sparse_matmul(s.run.rows, height, static_cast<std::size_t>(s.x.output.shape.last()),
                s.run.feeds[features.index].sparse, pieces.empty() ? std::span{&whole, 1} : pieces,
                s.out);
}

template <class T>
void run_sparse_gradient(const step<T>& s) {
  const auto& features = s.x.inputs[0];
  sparse_matmul_gradient(s.run.rows, static_cast<std::size_t>(features.shape.last()),
                         static_cast<std::size_t>(s.x.output.shape.last()),
                         s.run.feeds[features.index].sparse, s.b, s.out,
                         s.run.is_cleared(s.x.output));
}

template <class T>
void run_chain(const step<T>& s) {
  const auto inputs = s.x.inputs.size();
  s.run.split(s.elements(), least_elements, [&](range part, std::size_t thread) {
    const auto mine =
      std::span{s.run.registers}.subspan(thread * s.run.register_count, inputs + s.x.temporaries);
    for (std::size_t i = 0; i < inputs; ++i)
      mine[i] = s.operand(i) + part.begin;
    elementwise<T>(s.x.program, part.size(), mine, inputs, s.run.scratch_of(thread),
                   s.out + part.begin);
  });
}

/// Computes the loss of a softmax, a sum over rows. The rows are divided into row_blocks parts.
/// This number does not depend on the number of threads, so the sum always has the same bits.
template <class T>
void run_softmax_loss(const step<T>& s) {
  constexpr auto parts = row_blocks;
  const auto& x = s.x;
  const auto size = s.matrix(x.inputs[0]);
  const std::int32_t* const classes = s.run.labels(x.inputs[1]);
  T* const gradient = s.run.write(x.gradient);
  std::array<classification, parts> results;
  s.run.split(parts, least_elements / (size.rows * size.columns / parts + 1) + 1,
              [&](range some, std::size_t) {
                for (auto i = some.begin; i < some.end; ++i) {
                  const auto part = part_of(size.rows, parts, i);
                  const auto begin = part.begin * size.columns;
                  results[i] = softmax_cross_entropy<T>(
                    part.size(), size.columns, s.a + begin, classes + part.begin, x.labels,
                    x.factor, gradient != nullptr ? gradient + begin : nullptr, x.output.exists());
                }
              });
  classification sums;
  for (const auto& part : results) {
    sums.loss += part.loss;
    sums.correct += part.correct;
    sums.counted += part.counted;
  }
  s.run.write_scalar(x.output, x.factor * sums.loss);
  if (T* p = s.run.write(x.correct)) {
    *p = static_cast<T>(sums.correct);
    if (s.run.counts(x.correct)) {
      s.run.correct = sums.correct;
      s.run.counted = sums.counted;
    }
  }
}

template <class T>
void run_sum_leading(const step<T>& s) {
  const auto [rows, columns] = s.matrix(s.x.inputs[0]);
  const auto n = columns;
  T* const partial = s.run.shared.get();
  s.run.split(row_blocks, least_elements / (rows * n / row_blocks + 1) + 1,
              [&, rows = rows](range some, std::size_t) {
                for (auto i = some.begin; i < some.end; ++i) {
                  const auto part = part_of(rows, row_blocks, i);
                  sum_leading(part.size(), n, n, s.a + part.begin * n, partial + i * n);
                }
              });
  sum_leading(row_blocks, n, n, partial, s.out);
}

} // namespace

template <class T>
std::span<const operation_row<T>> dense_rows() {
  using op = operation;
  using s = const step<T>&;
  static const operation_row<T> rows[] = {
    {.op = op::matmul, .run = run_matmul<T>, .takes_epilogue = true, .bias = op::add_bias},
    {op::add_bias,
     [](s i) {
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         add_bias<T>(part.size(), columns, i.a + begin, i.b, std::nullopt, nullptr, i.out + begin);
       });
     }},
    {op::cast, [](s i) { i.run.convert(i.x.inputs[0], i.x.output); }},
    {op::sparse_matmul, run_sparse<T>},
    {op::sparse_matmul_gradient, run_sparse_gradient<T>},
    {op::elementwise, run_chain<T>,
     [](const instruction& x, std::size_t) { return x.temporaries * elementwise_block; }},
    {op::sum, [](s i) { i.run.write_scalar(i.x.output, sum(i.run.elements(i.x.inputs[0]), i.a)); }},
    {.op = op::sum_leading,
     .run = run_sum_leading<T>,
     .shared =
       [](const instruction& x, std::size_t most) {
         return row_blocks * matrix_extent(x.inputs[0].shape, most).columns;
       }},
    {op::sum_last,
     [](s i) {
       const auto size = i.matrix(i.x.inputs[0]);
       i.run.split_rows(size.rows, size.columns, [&](range part, std::size_t) {
         sum_last(part.size(), size.columns, i.a + part.begin * size.columns, i.out + part.begin);
       });
     }},
    {op::broadcast, [](s i) { std::fill_n(i.out, i.elements(), *i.a); }},
    {op::broadcast_leading,
     [](s i) {
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         broadcast_leading(part.size(), columns, i.a, i.out + begin);
       });
     }},
    {op::broadcast_last,
     [](s i) {
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         broadcast_last(part.size(), columns, i.a + part.begin, i.out + begin);
       });
     }},
    {op::softmax,
     [](s i) {
       i.by_rows([&](range part, std::size_t columns, std::size_t begin) {
         softmax(part.size(), columns, i.a + begin, i.out + begin);
       });
     }},
    {op::softmax_cross_entropy, run_softmax_loss<T>},
    {op::binary_correct,
     [](s i) {
       const auto n = i.run.elements(i.x.inputs[0]);
       const auto correct = binary_correct(n, i.a, i.run.labels(i.x.inputs[1]));
       i.run.write_scalar(i.x.output, static_cast<double>(correct));
       if (i.run.counts(i.x.output)) {
         i.run.correct = correct;
         i.run.counted = n;
       }
     }},
    {op::squared_error,
     [](s i) {
       const auto n = i.run.elements(i.x.inputs[0]);
       i.run.write_scalar(i.x.output, i.x.factor * squared_error(n, i.a, i.b));
     }},
    {op::to_float, [](s i) { std::copy_n(i.run.labels(i.x.inputs[0]), i.elements(), i.out); }},
    {op::dropout,
     [](s i) {
       dropout<T>(i.elements(), i.a, i.x.factor, stream_key(i.run.seed, {i.x.key}), i.out);
     }},
  };
  return rows;
}

template std::span<const operation_row<float>> dense_rows();
template std::span<const operation_row<double>> dense_rows();

} // namespace troupe::cpu
