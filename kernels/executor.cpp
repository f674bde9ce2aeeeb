#include "kernels/executor.hpp"

#include "kernels/cpu/convolution.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/flush_denormals.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/losses.hpp"
#include "kernels/cpu/sequences.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::align_val_t alignment{64};

struct aligned_delete {
  void operator()(void* p) const noexcept { ::operator delete(p, alignment); }
};

template <class T>
using aligned_array = std::unique_ptr<T[], aligned_delete>;

template <class T>
aligned_array<T> make_aligned(std::size_t n) {
  auto* p = static_cast<T*>(::operator new(std::max<std::size_t>(n, 1) * sizeof(T), alignment));
  std::fill_n(p, n, T(0)); // touches the pages: no run pays for that
  return aligned_array<T>(p);
}

/// A tensor as a matrix of all leading dimensions by the last one.
struct extent {
  std::size_t rows;
  std::size_t columns;
};

extent matrix_extent(const shape& x, std::size_t rows) {
  const auto columns = static_cast<std::size_t>(x.last());
  if (x.rank() < 1)
    return {1, 1};
  if (x.rank() == 1)
    return x.has_batch() ? extent{1, rows} : extent{1, columns};
  std::size_t leading = 1;
  for (std::size_t i = 0; i + 1 < x.rank(); ++i)
    leading *= x[i] == shape::batch ? rows : static_cast<std::size_t>(x[i]);
  return {leading, columns};
}

} // namespace

namespace {

cpu::images one_image(const operand& x) {
  const auto extent = [&](std::size_t axis) { return static_cast<std::size_t>(x.shape[axis]); };
  return {1, extent(1), extent(2), extent(3)};
}

cpu::recurrence recurrence_of(const instruction& x, std::size_t rows) {
  const auto& weight = x.inputs[x.op == operation::recurrent ? 1 : 2];
  return {x.cell, rows, static_cast<std::size_t>(x.output.shape[1]),
          static_cast<std::size_t>(weight.shape.last())};
}

/// Of products and of chains, which do not run at once.
template <class T>
std::size_t scratch_elements(const plan& what) {
  auto result = cpu::gemm_scratch_elements<T>();
  for (const auto& x : what.instructions()) {
    result = std::max(result, x.temporaries * cpu::elementwise_block);
    const auto convolve = [&](const operand& in, const operand& out) {
      result =
        std::max(result, cpu::conv2d_scratch_elements<T>(one_image(in), one_image(out), x.window));
    };
    if (x.op == operation::recurrent || x.op == operation::recurrent_gradient)
      result =
        std::max(result, cpu::recurrent_scratch_elements<T>(recurrence_of(x, what.max_rows())));
    else if (x.op == operation::conv2d)
      convolve(x.inputs[0], x.output);
    else if (x.op == operation::conv2d_input_gradient)
      convolve(x.output, x.inputs[0]);
    else if (x.op == operation::conv2d_weight_gradient)
      convolve(x.inputs[0], x.inputs[1]);
  }
  return result;
}

} // namespace

template <class T>
struct executor<T>::state {
  std::shared_ptr<const plan> what;
  aligned_array<T> arena;
  aligned_array<T> scratch;
  // Of the last run; copied into vectors of the right size.
  std::size_t rows = 0;
  std::vector<const T*> weights;
  std::vector<feed<T>> feeds;
  /// Pointers for a chain.
  std::vector<const T*> registers;
  T* gradient = nullptr;

  void bind(const run_arguments<T>& arguments);
  const T* read(const operand& x) const;
  const std::int32_t* labels(const operand& x) const { return feeds[x.index].labels; }
  T* write(const operand& x) const;
  std::size_t elements(const operand& x) const { return x.shape.elements(rows); }

  /// The last instruction that writes the place of the loss, or none.
  std::size_t loss_instruction = ~std::size_t{0};
  /// What the last instruction that made a scalar made, before it was rounded to T.
  double scalar = 0;
  std::size_t correct = 0;

  void execute(const instruction& x);
  void execute_matmul(const instruction& x);
  void execute_chain(const instruction& x);
  void execute_softmax_loss(const instruction& x);
  void execute_reduction(const instruction& x);
  void execute_image(const instruction& x);
  cpu::images images_of(const operand& x) const;
  void execute_sequence(const instruction& x);
  void execute_moves(const instruction& x);
  void execute_products(const instruction& x);
  std::size_t extent(const operand& x, std::size_t axis) const;
  /// Product of the extents of axes [first, last).
  std::size_t extents(const operand& x, std::size_t first, std::size_t last) const;
  void write_scalar(const operand& where, double value);
  double loss_of(const instruction& x) const;
};

template <class T>
void executor<T>::state::bind(const run_arguments<T>& arguments) {
  auto fail = [](const std::string& text) { throw std::invalid_argument("executor: " + text); };
  if (arguments.rows > what->max_rows())
    fail(std::to_string(arguments.rows) + " rows, the plan is for "
         + std::to_string(what->max_rows()));
  if (arguments.weights.size() != weights.size())
    fail(std::to_string(arguments.weights.size()) + " weights were bound, the layout has "
         + std::to_string(weights.size()));
  if (arguments.feeds.size() != feeds.size())
    fail(std::to_string(arguments.feeds.size()) + " feeds were given, the graph has "
         + std::to_string(feeds.size()) + " placeholders");
  if (what->has_gradients() && arguments.gradient.size() != what->parameters().size())
    fail("the gradient has " + std::to_string(arguments.gradient.size())
         + " elements, the layout has " + std::to_string(what->parameters().size()));
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const auto& given = arguments.feeds[i];
    const bool is_label = what->feed(i).type == dtype::int32;
    if (arguments.rows > 0 && what->reads_feed(i)
        && (is_label ? given.labels == nullptr : given.values == nullptr))
      fail("placeholder \"" + what->feed(i).name + "\" was not fed with "
           + (is_label ? "labels" : "values"));
  }
  rows = arguments.rows;
  std::ranges::copy(arguments.weights, weights.begin());
  std::ranges::copy(arguments.feeds, feeds.begin());
  gradient = arguments.gradient.data();
}

template <class T>
const T* executor<T>::state::read(const operand& x) const {
  switch (x.where) {
  case operand::place::weight:
    return weights[x.index];
  case operand::place::feed:
    return feeds[x.index].values;
  case operand::place::arena:
    return arena.get() + x.index;
  case operand::place::gradient:
    return gradient + x.index;
  case operand::place::none:
    break;
  }
  return nullptr;
}

template <class T>
T* executor<T>::state::write(const operand& x) const {
  switch (x.where) {
  case operand::place::arena:
    return arena.get() + x.index;
  case operand::place::gradient:
    return gradient + x.index;
  default:
    return nullptr;
  }
}

template <class T>
void executor<T>::state::write_scalar(const operand& where, double value) {
  scalar = value;
  if (T* p = write(where))
    *p = static_cast<T>(value);
}

/// The value of the loss after the instruction that makes it: not rounded, if that is a sum over
/// samples itself.
template <class T>
double executor<T>::state::loss_of(const instruction& x) const {
  switch (x.op) {
  case operation::softmax_cross_entropy:
  case operation::squared_error:
  case operation::sum:
    return scalar;
  default:
    return static_cast<double>(*read(what->loss()));
  }
}

template <class T>
void executor<T>::state::execute_matmul(const instruction& x) {
  const auto a = matrix_extent(x.inputs[0].shape, rows);
  const auto b = matrix_extent(x.inputs[1].shape, rows);
  cpu::matrix<T> left{read(x.inputs[0]), a.columns, 1};
  cpu::matrix<T> right{read(x.inputs[1]), b.columns, 1};
  if (x.transpose_a)
    left = left.transposed();
  if (x.transpose_b)
    right = right.transposed();
  const auto m = x.transpose_a ? a.columns : a.rows;
  const auto k = x.transpose_a ? a.rows : a.columns;
  const auto n = x.transpose_b ? b.rows : b.columns;
  T* const out = write(x.output);
  cpu::gemm<T>(m, n, k, left, right, out, n, scratch.get());
  cpu::add_bias<T>(m, n, out, read(x.bias), x.after, read(x.epilogue_operand), out);
}

template <class T>
void executor<T>::state::execute_chain(const instruction& x) {
  const auto inputs = x.inputs.size();
  for (std::size_t i = 0; i < inputs; ++i)
    registers[i] = read(x.inputs[i]);
  cpu::elementwise<T>(x.program, elements(x.output),
                      std::span{registers}.first(inputs + x.temporaries), inputs, scratch.get(),
                      write(x.output));
}

template <class T>
void executor<T>::state::execute_softmax_loss(const instruction& x) {
  const auto size = matrix_extent(x.inputs[0].shape, rows);
  const auto sums =
    cpu::softmax_cross_entropy<T>(size.rows, size.columns, read(x.inputs[0]), labels(x.inputs[1]),
                                  write(x.gradient), x.output.exists());
  write_scalar(x.output, sums.loss);
  if (T* p = write(x.correct)) {
    *p = static_cast<T>(sums.correct);
    if (x.correct.index == what->correct().index)
      correct = sums.correct;
  }
}

template <class T>
void executor<T>::state::execute_reduction(const instruction& x) {
  const T* const in = read(x.inputs[0]);
  T* const out = write(x.output);
  const auto input = matrix_extent(x.inputs[0].shape, rows);
  const auto output = matrix_extent(x.output.shape, rows);
  switch (x.op) {
  case operation::sum_leading:
    cpu::sum_leading(input.rows, input.columns, in, out);
    break;
  case operation::sum_last:
    cpu::sum_last(input.rows, input.columns, in, out);
    break;
  case operation::broadcast:
    std::fill_n(out, elements(x.output), *in);
    break;
  case operation::broadcast_leading:
    cpu::broadcast_leading(output.rows, output.columns, in, out);
    break;
  case operation::broadcast_last:
    cpu::broadcast_last(output.rows, output.columns, in, out);
    break;
  case operation::softmax:
    cpu::softmax(input.rows, input.columns, in, out);
    break;
  default:
    break;
  }
}

/// (batch, channels, ...): all that follows counts as pixels where it is not height and width.
template <class T>
cpu::images executor<T>::state::images_of(const operand& x) const {
  const auto extent = [&](std::size_t axis) {
    return axis < x.shape.rank() ? static_cast<std::size_t>(x.shape[axis]) : 1;
  };
  const auto count = x.shape.has_batch() ? rows : extent(0);
  if (x.shape.rank() == 4)
    return {count, extent(1), extent(2), extent(3)};
  return {count, extent(1), x.shape.elements(1) / (extent(1) * (x.shape.has_batch() ? 1 : count)),
          1};
}

template <class T>
void executor<T>::state::execute_image(const instruction& x) {
  const T* const a = read(x.inputs[0]);
  const T* const b = x.inputs.size() > 1 ? read(x.inputs[1]) : nullptr;
  T* const out = write(x.output);
  const auto input = images_of(x.inputs[0]);
  const auto output = images_of(x.output);
  const cpu::finish<T> last{read(x.bias), x.after, read(x.epilogue_operand)};
  switch (x.op) {
  case operation::conv2d:
    cpu::conv2d(input, output, x.window, a, b, last, out, scratch.get());
    break;
  case operation::conv2d_input_gradient:
    cpu::conv2d_input_gradient(output, input, x.window, a, b, last, out, scratch.get());
    break;
  case operation::conv2d_weight_gradient:
    cpu::conv2d_weight_gradient(input, images_of(x.inputs[1]), x.window, a, b, out, scratch.get());
    break;
  case operation::add_channel_bias:
    cpu::add_channel_bias(output, a, b, out);
    break;
  case operation::sum_channels:
    cpu::sum_channels(input, a, out);
    break;
  case operation::broadcast_channels:
    cpu::broadcast_channels(output, a, out);
    break;
  case operation::max_pool_select:
    cpu::max_pool_select(input, output, x.window, a, b, out);
    break;
  case operation::max_pool_gradient:
    cpu::max_pool_gradient(output, input, x.window, a, b, out);
    break;
  case operation::average_pool:
    cpu::average_pool(input, output, x.window, a, out);
    break;
  case operation::average_pool_gradient:
    cpu::average_pool_gradient(output, input, x.window, a, out);
    break;
  default:
    break;
  }
}

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

template <class T>
void executor<T>::state::execute(const instruction& x) {
  switch (x.op) {
  case operation::matmul:
    execute_matmul(x);
    break;
  case operation::add_bias: {
    const auto size = matrix_extent(x.output.shape, rows);
    cpu::add_bias<T>(size.rows, size.columns, read(x.inputs[0]), read(x.inputs[1]), epilogue::none,
                     nullptr, write(x.output));
    break;
  }
  case operation::elementwise:
    execute_chain(x);
    break;
  case operation::sum_leading:
  case operation::sum_last:
  case operation::broadcast:
  case operation::broadcast_leading:
  case operation::broadcast_last:
  case operation::softmax:
    execute_reduction(x);
    break;
  case operation::binary_correct:
    correct = cpu::binary_correct(elements(x.inputs[0]), read(x.inputs[0]), labels(x.inputs[1]));
    write_scalar(x.output, static_cast<double>(correct));
    break;
  case operation::to_float:
    std::copy_n(labels(x.inputs[0]), elements(x.output), write(x.output));
    break;
  case operation::softmax_cross_entropy:
  case operation::softmax_cross_entropy_gradient:
  case operation::softmax_correct:
    execute_softmax_loss(x);
    break;
  case operation::squared_error:
    write_scalar(
      x.output,
      x.factor * cpu::squared_error(elements(x.inputs[0]), read(x.inputs[0]), read(x.inputs[1])));
    break;
  case operation::sum:
    write_scalar(x.output, cpu::sum(elements(x.inputs[0]), read(x.inputs[0])));
    break;
  default:
    if (elementwise_arity(x.op) == 1)
      cpu::unary<T>(x.op, elements(x.output), read(x.inputs[0]), static_cast<T>(x.factor),
                    write(x.output));
    else if (elementwise_arity(x.op) == 2)
      cpu::binary<T>(x.op, elements(x.output), read(x.inputs[0]), read(x.inputs[1]),
                     static_cast<T>(x.factor), write(x.output));
    else if (x.op >= operation::transpose && x.op <= operation::recurrent_gradient)
      execute_sequence(x);
    else
      execute_image(x);
    break;
  }
}

template <class T>
executor<T>::executor(std::shared_ptr<const plan> what) : state_(std::make_unique<state>()) {
  auto& s = *state_;
  s.what = std::move(what);
  s.arena = make_aligned<T>(s.what->arena_elements());
  s.scratch = make_aligned<T>(scratch_elements<T>(*s.what));
  for (const auto& x : s.what->instructions())
    s.registers.resize(std::max(s.registers.size(), x.inputs.size() + x.temporaries));
  s.weights.resize(s.what->parameters().entries().size());
  s.feeds.resize(s.what->feed_count());
  const auto& loss = s.what->loss();
  for (std::size_t i = 0; i < s.what->instructions().size(); ++i) {
    const auto& output = s.what->instructions()[i].output;
    if (loss.exists() && output.where == loss.where && output.index == loss.index)
      s.loss_instruction = i;
  }
  for (const auto& constant : s.what->constants()) {
    T* const out = s.write(constant.where);
    const auto n = constant.where.shape.elements(s.what->max_rows());
    for (std::size_t i = 0; i < n; ++i)
      out[i] = static_cast<T>(constant.values[constant.values.size() == 1 ? 0 : i]);
  }
}

template <class T>
executor<T>::~executor() = default;
template <class T>
executor<T>::executor(executor&&) noexcept = default;
template <class T>
executor<T>& executor<T>::operator=(executor&&) noexcept = default;

template <class T>
run_result executor<T>::run(const run_arguments<T>& arguments) {
  auto& s = *state_;
  s.bind(arguments);
  for (const auto& part : s.what->zero_gradients())
    std::fill_n(s.gradient + part.begin, part.size(), T(0));
  s.correct = 0;
  run_result result;
  if (const T* p = s.read(s.what->loss()); p != nullptr && s.loss_instruction == ~std::size_t{0})
    result.loss = static_cast<double>(*p); // a loss that is a constant, or a variable
  const auto& instructions = s.what->instructions();
  const auto& buckets = s.what->buckets();
  std::size_t next = 0;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    {
      const cpu::flush_denormals mode;
      s.execute(instructions[i]);
    }
    if (i == s.loss_instruction)
      result.loss = s.loss_of(instructions[i]);
    for (; next < buckets.size() && buckets[next].ready_after == i; ++next)
      if (arguments.on_bucket)
        arguments.on_bucket(next);
  }
  for (; next < buckets.size(); ++next) // of a plan without instructions
    if (arguments.on_bucket)
      arguments.on_bucket(next);
  result.correct = s.correct;
  return result;
}

template <class T>
std::span<const T> executor<T>::fetched(std::size_t index) const {
  const auto& where = state_->what->fetches().at(index);
  return {state_->read(where), state_->elements(where)};
}

template <class T>
const plan& executor<T>::what() const noexcept {
  return *state_->what;
}

template <class T>
std::size_t executor<T>::memory_bytes() const noexcept {
  return (state_->what->arena_elements() + scratch_elements<T>(*state_->what)) * sizeof(T);
}

template class executor<float>;
template class executor<double>;

} // namespace troupe
