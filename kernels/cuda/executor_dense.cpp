#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/dense_product.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/losses.hpp"
#include "kernels/cuda/operation_table.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/cuda/sparse.hpp"

#include <algorithm>
#include <vector>

// The rows of the operation table for products, programs of element-wise operations, reductions and
// losses.

namespace troupe::cuda {

namespace {

/// The sizes and types of the product that an instruction computes, without addresses.
product product_of(const instruction& x, std::size_t rows) {
  const auto a = matrix_extent(x.inputs[0].shape, rows);
  const auto b = matrix_extent(x.inputs[1].shape, rows);
  return {.m = x.transpose_a ? a.columns : a.rows,
          .n = x.transpose_b ? b.rows : b.columns,
          .k = x.transpose_a ? a.rows : a.columns,
          .transpose_a = x.transpose_a,
          .transpose_b = x.transpose_b,
          .operands = x.inputs[0].type,
          .result = x.output.type};
}

void run_matmul(const step& s) {
  const auto& x = s.x;
  auto what = product_of(x, s.run.rows);
  what.a = s.a;
  what.b = s.b;
  what.c = s.out;
  what.tf32 = s.run.options.tf32;
  multiply(s.run.gpu, s.where(), {what, s.run.read(x.bias), s.last()}, s.space());
}

void run_sparse(const step& s) {
  const auto& features = s.x.inputs[0];
  sparse_matmul(s.where(), s.run.rows, static_cast<std::size_t>(features.shape.last()),
                static_cast<std::size_t>(s.x.output.shape.last()),
                s.run.sparse.at(features.index).entries(), s.b, s.out);
}

void run_sparse_gradient(const step& s) {
  const auto& features = s.x.inputs[0];
  sparse_matmul_gradient(s.where(), s.run.rows, static_cast<std::size_t>(features.shape.last()),
                         static_cast<std::size_t>(s.x.output.shape.last()),
                         s.run.sparse.at(features.index).columns(), s.b, s.out,
                         s.run.takes_rows_only(s.x.output));
}

void run_cast(const step& s) {
  const converted all[] = {{s.a, s.x.inputs[0].type, s.out, s.x.output.type, s.elements()}};
  convert(s.where(), all);
}

void run_chain(const step& s) {
  std::array<mixed_input, most_chain_inputs> inputs{};
  const auto n = std::min(s.x.inputs.size(), inputs.size());
  for (std::size_t i = 0; i < n; ++i)
    inputs[i] = s.values(i);
  elementwise(s.where(), s.x.program, s.elements(), std::span<const mixed_input>{inputs}.first(n),
              s.x.temporaries, s.result());
}

/// Runs by_channel(). The last operand has a value for each channel. If there are two operands, the
/// first one is x.
void run_by_channel(const step& s, channel_operation how, std::size_t channels, std::size_t inner) {
  const bool broadcast = how == channel_operation::broadcast;
  by_channel(
    s.where(), how,
    {s.elements(), channels, inner, broadcast ? nullptr : s.a, broadcast ? s.a : s.b, {}, s.out});
}

void run_softmax_loss(const step& s) {
  const auto& x = s.x;
  auto& run = s.run;
  const auto size = s.matrix(x.inputs[0]);
  const bool counts = run.counts(x.correct);
  double* const slots = run.scalars.data();
  const auto slot = [&](scalar_slot i) { return counts ? slots + i : nullptr; };
  softmax_cross_entropy(s.where(),
                        {size.rows, size.columns, s.values(0), run.labels_of(x.inputs[1]), x.labels,
                         x.factor, run.write(x.gradient), s.space() + sum_space, s.space()},
                        run.scalar(x.output), {slot(correct_slot), run.write(x.correct)},
                        {slot(counted_slot), nullptr});
}

void run_binary_correct(const step& s) {
  auto out = s.run.scalar(s.x.output);
  const auto n = s.run.elements(s.x.inputs[0]);
  if (s.run.counts(s.x.output)) {
    out.exact = s.run.scalars.data() + correct_slot;
    s.run.counted = n;
  }
  binary_correct(s.where(), n, s.a, s.run.labels_of(s.x.inputs[1]), s.space(), out);
}

} // namespace

std::span<const operation_row> dense_rows() {
  using op = operation;
  using s = const step&;
  using how = channel_operation;
  static const operation_row rows[] = {
    {.op = op::cast, .run = run_cast, .mixed = true},
    {.op = op::matmul,
     .run = run_matmul,
     .space =
       [](const instruction& x, std::size_t rows) {
         // `rows` is the largest number of rows. Fewer rows may need more space: for example, 16
         // rows need no padding, but 15 rows do. Therefore, this returns the larger space of `rows`
         // and `rows - 1`.
         const bool ends = x.bias.exists() || x.after;
         const auto bytes = std::max(product_space(product_of(x, rows), ends),
                                     product_space(product_of(x, rows > 0 ? rows - 1 : 0), ends));
         return (bytes + sizeof(double) - 1) / sizeof(double);
       },
     .mixed = true,
     .takes_epilogue = true,
     .bias = op::add_bias},
    {.op = op::add_bias,
     .run =
       [](s i) {
         by_channel(i.where(), how::add,
                    {i.elements(),
                     i.matrix(i.x.output).columns,
                     1,
                     i.a,
                     i.b,
                     {},
                     i.out,
                     i.x.inputs[0].type,
                     i.x.output.type});
       },
     .mixed = true,
     .wide_input = 1},
    {op::sparse_matmul, run_sparse},
    {op::sparse_matmul_gradient, run_sparse_gradient},
    {.op = op::elementwise, .run = run_chain, .mixed = true},
    {.op = op::sum,
     .run =
       [](s i) {
         sum(i.where(), i.run.elements(i.x.inputs[0]), i.values(0), 1, i.space(),
             i.run.scalar(i.x.output));
       },
     .narrow = true},
    {.op = op::sum_leading,
     .run =
       [](s i) {
         const auto size = i.matrix(i.x.inputs[0]);
         sum_leading(i.where(), size.rows, size.columns, i.values(0), i.space(), i.out);
       },
     .space =
       [](const instruction& x, std::size_t rows) {
         const auto size = matrix_extent(x.inputs[0].shape, rows);
         return row_parts(size.rows, size.columns) * size.columns;
       },
     .narrow = true},
    {.op = op::sum_last,
     .run =
       [](s i) {
         const auto size = i.matrix(i.x.inputs[0]);
         sum_last(i.where(), size.rows, size.columns, i.values(0), i.out);
       },
     .narrow = true},
    {op::broadcast, [](s i) { run_by_channel(i, how::broadcast, 1, 1); }},
    {op::broadcast_leading,
     [](s i) { run_by_channel(i, how::broadcast, i.matrix(i.x.output).columns, 1); }},
    {op::broadcast_last,
     [](s i) {
       const auto size = i.matrix(i.x.output);
       run_by_channel(i, how::broadcast, size.rows, size.columns);
     }},
    {.op = op::softmax,
     .run =
       [](s i) {
         const auto size = i.matrix(i.x.output);
         softmax(i.where(), size.rows, size.columns, 0, i.values(0), i.out);
       },
     .narrow = true},
    {.op = op::softmax_cross_entropy,
     .run = run_softmax_loss,
     .space =
       [](const instruction& x, std::size_t rows) {
         return sum_space + 3 * matrix_extent(x.inputs[0].shape, rows).rows;
       },
     .narrow = true},
    {op::binary_correct, run_binary_correct},
    {op::squared_error,
     [](s i) {
       squared_error(i.where(), i.run.elements(i.x.inputs[0]), i.a, i.b, i.x.factor, i.space(),
                     i.run.scalar(i.x.output));
     }},
    {op::to_float,
     [](s i) { to_float(i.where(), i.elements(), i.run.labels_of(i.x.inputs[0]), i.out); }},
    {.op = op::dropout,
     .run =
       [](s i) {
         dropout(i.where(), i.elements(), i.values(0), i.x.factor,
                 i.run.keys.data() + i.run.key_of.at(&i.x), i.result());
       },
     .narrow = true},
  };
  return rows;
}

} // namespace troupe::cuda
