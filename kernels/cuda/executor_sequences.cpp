#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/losses.hpp"
#include "kernels/cuda/movement.hpp"
#include "kernels/cuda/normalization.hpp"
#include "kernels/cuda/operation_table.hpp"
#include "kernels/cuda/recurrence.hpp"

#include <algorithm>
#include <array>

// The rows of the operation table for operations on sequences.

namespace troupe::cuda {

namespace {

void run_transpose(const step& s) {
  const auto& y = s.x.output;
  const auto& x = s.x.inputs[0];
  const auto rank = y.shape.rank();
  std::array<std::size_t, cpu::most_axes> sizes{};
  std::array<std::size_t, cpu::most_axes> strides{};
  for (std::size_t i = 0; i < rank; ++i) {
    sizes[i] = s.run.extent(y, i);
    strides[i] = s.run.extents(x, s.x.axes[i] + 1, rank);
  }
  gather_strided(s.where(), std::span{sizes}.first(rank), std::span{strides}.first(rank),
                 s.run.elements(x), s.values(0), s.result());
}

void run_batched_matmul(const step& s) {
  const auto& x = s.x;
  const auto rank = x.output.shape.rank();
  s.run.gpu.multiply(s.where(),
                     {.m = s.run.extent(x.output, rank - 2),
                      .n = s.run.extent(x.output, rank - 1),
                      .k = s.run.extent(x.inputs[0], x.transpose_a ? rank - 2 : rank - 1),
                      .transpose_a = x.transpose_a,
                      .transpose_b = x.transpose_b,
                      .a = s.a,
                      .b = s.b,
                      .c = s.out,
                      .batch = s.run.extents(x.output, 0, rank - 2),
                      .operands = x.inputs[0].type,
                      .result = x.output.type,
                      .tf32 = s.run.options.tf32});
}

/// The sizes of an operation that copies parts of a tensor along one axis, such as slice or concat.
/// The dimensions before the axis are rows. The dimensions after the axis are `inner` elements that
/// stay together.
struct move_step {
  const step& s;
  std::size_t axis = s.x.axes[0];
  std::size_t inner = s.run.extents(s.x.output, axis + 1, s.x.output.shape.rank());
  std::size_t rows = s.run.extents(s.x.output, 0, axis);
  /// The number of elements in a row of the result, and in a row of the first operand.
  std::size_t width = width_of(s.x.output);
  std::size_t from = width_of(s.x.inputs[0]);

  std::size_t width_of(const operand& x) const { return s.run.extent(x, axis) * inner; }
  /// The position in a row of the first element that slice reads, or that place writes.
  std::size_t begin() const { return s.x.axes[1] * inner; }
};

/// Points to the elements of x from number n on.
mixed_input after(mixed_input x, std::size_t n) {
  return {static_cast<const std::byte*>(x.data) + n * size_of(x.type), x.type};
}
mixed_output after(mixed_output x, std::size_t n) {
  return {static_cast<std::byte*>(x.data) + n * size_of(x.type), x.type};
}

void run_slice(const step& s) {
  const move_step move{s};
  copy_rows(
    s.where(),
    {move.rows, move.width, after(s.values(0), move.begin()), move.from, s.result(), move.width});
}

void run_place(const step& s) {
  const move_step move{s};
  fill_zero(s.where(), s.elements(), s.result());
  copy_rows(
    s.where(),
    {move.rows, move.from, s.values(0), move.from, after(s.result(), move.begin()), move.width});
}

void run_concat(const step& s) {
  const move_step move{s};
  auto to = s.result();
  for (std::size_t i = 0; i < s.x.inputs.size(); ++i) {
    const auto size = move.width_of(s.x.inputs[i]);
    copy_rows(s.where(), {move.rows, size, s.values(i), size, to, move.width});
    to = after(to, size);
  }
}

void run_reverse(const step& s) {
  const move_step move{s};
  reverse(s.where(), move.rows, move.width / std::max<std::size_t>(move.inner, 1), move.inner,
          s.values(0), s.result());
}

void run_blend(const step& s) {
  const move_step move{s};
  blend(s.where(), move.rows,
        {s.run.extent(s.x.inputs[0], move.axis), s.run.extent(s.x.output, move.axis),
         s.run.extent(s.x.inputs[1], 1), move.inner},
        s.a, s.b, s.out);
}

/// The sizes of a recurrent layer. `weight` is the position of the weights w among the inputs.
template <std::size_t weight>
cpu::recurrence recurrence_of(const instruction& x, std::size_t rows) {
  return {x.cell, rows, static_cast<std::size_t>(x.output.shape[1]),
          static_cast<std::size_t>(x.inputs[weight].shape.last())};
}

/// The number of doubles of work space. The recurrence uses this memory as floats.
template <std::size_t weight>
std::size_t space_of_recurrence(const instruction& x, std::size_t rows) {
  return (recurrence_space(recurrence_of<weight>(x, rows)) + 1) / 2;
}

float* floats(double* space) {
  return reinterpret_cast<float*>(space);
}

attention_inputs attention_operands_of(const step& s) {
  const auto& how = s.x.attention;
  const auto first = attention_layout::first_operand(s.x);
  return {s.values(first + how.queries.operand), s.values(first + how.keys.operand),
          s.values(first + how.values.operand)};
}

void run_attention(const step& s) {
  attention(s.where(), {s.x, s.run.rows}, attention_operands_of(s), s.result(),
            s.run.write(s.x.more[0]));
}

void run_attention_gradient(const step& s) {
  const auto& how = s.x.attention;
  const auto result = [&](const attention_operands::part& part) -> mixed_output {
    const auto& to = part.operand == 0 ? s.x.output : s.x.more[part.operand - 1];
    return {s.run.write(to), to.type};
  };
  attention_gradient(s.where(), {s.x, s.run.rows}, attention_operands_of(s), s.values(0),
                     s.values(1), s.operand(2), floats(s.space()),
                     {result(how.queries), result(how.keys), result(how.values)});
}

/// The work space for `products` of attention_gradient(): one float per query of each head. Work
/// space is counted in doubles.
std::size_t space_of_attention(const instruction& x, std::size_t rows) {
  const attention_layout size(x, rows);
  return (size.batch * size.heads * size.queries + 1) / 2;
}

} // namespace

std::span<const operation_row> sequence_rows() {
  using op = operation;
  using s = const step&;
  static const operation_row rows[] = {
    {.op = op::transpose, .run = run_transpose, .narrow = true},
    {.op = op::batched_matmul, .run = run_batched_matmul, .mixed = true},
    {.op = op::slice, .run = run_slice, .narrow = true},
    {.op = op::place, .run = run_place, .narrow = true},
    {.op = op::reverse, .run = run_reverse, .narrow = true},
    {.op = op::concat, .run = run_concat, .narrow = true},
    {.op = op::blend, .run = run_blend},
    {op::embedding,
     [](s i) {
       const auto size = i.matrix(i.x.output);
       embedding(i.where(), size.rows, i.run.extent(i.x.inputs[0], 0), size.columns,
                 i.run.labels_of(i.x.inputs[1]), i.a, i.out);
     }},
    {.op = op::embedding_gradient,
     .run =
       [](s i) {
         const auto size = i.matrix(i.x.output);
         embedding_gradient(i.where(), i.run.elements(i.x.inputs[1]), size.rows, size.columns,
                            i.run.labels_of(i.x.inputs[1]), i.a,
                            reinterpret_cast<std::uint64_t*>(i.space()), i.out,
                            i.run.takes_rows_only(i.x.output));
       },
     .space =
       [](const instruction& x, std::size_t rows) {
         return embedding_gradient_space(x.inputs[1].shape.elements(rows));
       }},
    {.op = op::normalize_rows,
     .run =
       [](s i) {
         const auto size = i.matrix(i.x.output);
         normalize_rows(i.where(), size.rows, size.columns, i.values(0), i.x.factor, i.result());
       },
     .narrow = true},
    {.op = op::normalize_rows_gradient,
     .run =
       [](s i) {
         const auto size = i.matrix(i.x.output);
         normalize_rows_gradient(i.where(), size.rows, size.columns, i.values(0), i.values(1),
                                 i.x.factor, i.result());
       },
     .narrow = true},
    {.op = op::multiply_rows,
     .run =
       [](s i) {
         by_channel(i.where(), channel_operation::multiply,
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
    {.op = op::causal_softmax,
     .run =
       [](s i) {
         const auto size = i.matrix(i.x.output);
         softmax(i.where(), size.rows, size.columns, size.columns, i.values(0), i.out);
       },
     .narrow = true},
    {.op = op::attention, .run = run_attention, .mixed = true},
    {.op = op::attention_gradient,
     .run = run_attention_gradient,
     .space = space_of_attention,
     .mixed = true,
     .wide_input = 2},
    {op::recurrent,
     [](s i) {
       recurrent(i.run.gpu, i.where(), recurrence_of<1>(i.x, i.run.rows), i.a, i.b, i.operand(2),
                 i.out, floats(i.space()));
     },
     space_of_recurrence<1>},
    {op::recurrent_gradient,
     [](s i) {
       recurrent_gradient(i.run.gpu, i.where(), recurrence_of<2>(i.x, i.run.rows), i.a, i.b,
                          i.operand(2), i.out, floats(i.space()));
     },
     space_of_recurrence<2>},
  };
  return rows;
}

} // namespace troupe::cuda
