#include "kernels/cpu/executor_state.hpp"

#include "kernels/cpu/dropout.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/flush_denormals.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/losses.hpp"
#include "kernels/cpu/sparse.hpp"
#include "kernels/error.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace troupe {

namespace {

/// Scratch space shared by products and chains, which never run at the same time.
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
  return (result + 15) / 16 * 16;
}

/// For the partial sums of sum_leading, which all threads share.
std::size_t partial_elements(const plan& what) {
  std::size_t columns = 0;
  for (const auto& x : what.instructions())
    if (x.op == operation::sum_leading)
      columns = std::max(columns, matrix_extent(x.inputs[0].shape, what.max_rows()).columns);
  return row_blocks * columns;
}

} // namespace

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
    const auto type = what->feed(i).type;
    const bool fed = type == dtype::int32 ? given.labels != nullptr
      : type == dtype::sparse             ? given.sparse.starts != nullptr
                                          : given.values != nullptr;
    if (arguments.rows > 0 && what->reads_feed(i) && !fed)
      fail("placeholder \"" + what->feed(i).name + "\" was not fed with "
           + (type == dtype::int32      ? "labels"
                : type == dtype::sparse ? "sparse rows"
                                        : "values"));
  }
  rows = arguments.rows;
  std::ranges::copy(arguments.weights, weights.begin());
  std::ranges::copy(arguments.feeds, feeds.begin());
  gradient = arguments.gradient.data();
  seed = arguments.seed;
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

/// The value of the loss after its instruction: not rounded, if that instruction itself sums over
/// samples.
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
  const T* const bias = read(x.bias);
  const T* const operand = read(x.epilogue_operand);
  const auto least = [&](std::size_t width) {
    return least_products / std::max<std::size_t>(width * k, 1) + 1;
  };
  // Rows stay with the thread that computed them. But each thread packs the whole right operand,
  // which takes relatively long for few rows.
  if (m >= 512 || m >= 2 * n) {
    // A product of one row sums in another order.
    split(m, std::max<std::size_t>(least(n), 2), [&](range part, std::size_t thread) {
      T* const to = out + part.begin * n;
      cpu::gemm<T>(part.size(), n, k,
                   {left.data + part.begin * left.row_stride, left.row_stride, left.column_stride},
                   right, to, n, scratch_of(thread));
      cpu::add_bias<T>(part.size(), n, to, bias, x.after,
                       operand != nullptr ? operand + part.begin * n : nullptr, to);
    });
    return;
  }
  split(n, least(m) + 16, [&](range part, std::size_t thread) {
    T* to = out + part.begin;
    cpu::gemm<T>(
      m, part.size(), k, left,
      {right.data + part.begin * right.column_stride, right.row_stride, right.column_stride}, to, n,
      scratch_of(thread));
    if (part.size() == n) {
      cpu::add_bias<T>(m, n, to, bias, x.after, operand, to);
      return;
    }
    for (std::size_t r = 0; r < m; ++r, to += n)
      cpu::add_bias<T>(1, part.size(), to, bias != nullptr ? bias + part.begin : nullptr, x.after,
                       operand != nullptr ? operand + r * n + part.begin : nullptr, to);
  });
}

template <class T>
void executor<T>::state::execute_sparse(const instruction& x) {
  const auto& matrix = feeds[x.inputs[0].index].sparse;
  const auto features = static_cast<std::size_t>(x.inputs[0].shape.last());
  const auto units = static_cast<std::size_t>(x.output.shape.last());
  if (x.op == operation::sparse_matmul)
    cpu::sparse_matmul(rows, features, units, matrix, read(x.inputs[1]), write(x.output));
  else
    cpu::sparse_matmul_gradient(rows, features, units, matrix, read(x.inputs[1]), write(x.output));
}

template <class T>
void executor<T>::state::execute_chain(const instruction& x) {
  const auto inputs = x.inputs.size();
  split(elements(x.output), least_elements, [&](range part, std::size_t thread) {
    const auto mine = std::span{registers}.subspan(thread * register_count, inputs + x.temporaries);
    for (std::size_t i = 0; i < inputs; ++i)
      mine[i] = read(x.inputs[i]) + part.begin;
    cpu::elementwise<T>(x.program, part.size(), mine, inputs, scratch_of(thread),
                        write(x.output) + part.begin);
  });
}

/// The number of parts does not depend on the threads, so the sum is always the same.
template <class T>
void executor<T>::state::execute_softmax_loss(const instruction& x) {
  constexpr auto parts = row_blocks;
  const auto size = matrix_extent(x.inputs[0].shape, rows);
  const T* const logits = read(x.inputs[0]);
  const std::int32_t* const classes = labels(x.inputs[1]);
  T* const gradient = write(x.gradient);
  std::array<cpu::classification, parts> results;
  split(parts, least_elements / (size.rows * size.columns / parts + 1) + 1,
        [&](range some, std::size_t) {
          for (auto i = some.begin; i < some.end; ++i) {
            const auto part = part_of(size.rows, parts, i);
            const auto begin = part.begin * size.columns;
            results[i] = cpu::softmax_cross_entropy<T>(
              part.size(), size.columns, logits + begin, classes + part.begin, x.labels, x.factor,
              gradient != nullptr ? gradient + begin : nullptr, x.output.exists());
          }
        });
  cpu::classification sums;
  for (const auto& part : results) {
    sums.loss += part.loss;
    sums.correct += part.correct;
    sums.counted += part.counted;
  }
  write_scalar(x.output, x.factor * sums.loss);
  if (T* p = write(x.correct)) {
    *p = static_cast<T>(sums.correct);
    if (x.correct.index == what->correct().index) {
      correct = sums.correct;
      counted = sums.counted;
    }
  }
}

template <class T>
void executor<T>::state::execute_reduction(const instruction& x) {
  const T* const in = read(x.inputs[0]);
  T* const out = write(x.output);
  const auto input = matrix_extent(x.inputs[0].shape, rows);
  const auto output = matrix_extent(x.output.shape, rows);
  const auto by_rows = [&](auto f) {
    split_rows(output.rows, output.columns, [&](range part, std::size_t) {
      const auto begin = part.begin * output.columns;
      f(part, begin);
    });
  };
  switch (x.op) {
  case operation::sum_leading:
    split(row_blocks, least_elements / (input.rows * input.columns / row_blocks + 1) + 1,
          [&](range some, std::size_t) {
            for (auto i = some.begin; i < some.end; ++i) {
              const auto part = part_of(input.rows, row_blocks, i);
              cpu::sum_leading(part.size(), input.columns, input.columns,
                               in + part.begin * input.columns,
                               partial_sums.get() + i * input.columns);
            }
          });
    cpu::sum_leading(row_blocks, input.columns, input.columns, partial_sums.get(), out);
    break;
  case operation::sum_last:
    split_rows(input.rows, input.columns, [&](range part, std::size_t) {
      cpu::sum_last(part.size(), input.columns, in + part.begin * input.columns, out + part.begin);
    });
    break;
  case operation::broadcast:
    std::fill_n(out, elements(x.output), *in);
    break;
  case operation::broadcast_leading:
    by_rows([&](range part, std::size_t begin) {
      cpu::broadcast_leading(part.size(), output.columns, in, out + begin);
    });
    break;
  case operation::broadcast_last:
    by_rows([&](range part, std::size_t begin) {
      cpu::broadcast_last(part.size(), output.columns, in + part.begin, out + begin);
    });
    break;
  case operation::softmax:
    by_rows([&](range part, std::size_t begin) {
      cpu::softmax(part.size(), output.columns, in + begin, out + begin);
    });
    break;
  default:
    break;
  }
}

template <class T>
void executor<T>::state::execute_elementwise(const instruction& x) {
  const T* const a = read(x.inputs[0]);
  const T* const b = x.inputs.size() > 1 ? read(x.inputs[1]) : nullptr;
  const T* const c = x.inputs.size() > 2 ? read(x.inputs[2]) : nullptr;
  T* const out = write(x.output);
  const auto factor = static_cast<T>(x.factor);
  split(elements(x.output), least_elements, [&](range part, std::size_t) {
    const auto i = part.begin;
    switch (elementwise_arity(x.op)) {
    case 1:
      cpu::unary<T>(x.op, part.size(), a + i, factor, out + i);
      break;
    case 2:
      cpu::binary<T>(x.op, part.size(), a + i, b + i, factor, out + i);
      break;
    default:
      cpu::ternary<T>(x.op, part.size(), a + i, b + i, c + i, out + i);
    }
  });
}

template <class T>
void executor<T>::state::execute(const instruction& x) {
  switch (x.op) {
  case operation::matmul:
    execute_matmul(x);
    break;
  case operation::add_bias: {
    const auto size = matrix_extent(x.output.shape, rows);
    split_rows(size.rows, size.columns, [&](range part, std::size_t) {
      const auto begin = part.begin * size.columns;
      cpu::add_bias<T>(part.size(), size.columns, read(x.inputs[0]) + begin, read(x.inputs[1]),
                       epilogue::none, nullptr, write(x.output) + begin);
    });
    break;
  }
  case operation::sparse_matmul:
  case operation::sparse_matmul_gradient:
    execute_sparse(x);
    break;
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
    counted = elements(x.inputs[0]);
    write_scalar(x.output, static_cast<double>(correct));
    break;
  case operation::to_float:
    std::copy_n(labels(x.inputs[0]), elements(x.output), write(x.output));
    break;
  case operation::dropout:
    cpu::dropout<T>(elements(x.output), read(x.inputs[0]), x.factor, stream_key(seed, {x.key}),
                    write(x.output));
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
    if (elementwise_arity(x.op) > 0)
      execute_elementwise(x);
    else if (x.op >= operation::transpose && x.op <= operation::recurrent_gradient)
      execute_sequence(x);
    else
      execute_image(x);
    break;
  }
}

namespace {

/// Bytes; no limit if the system does not say.
std::uint64_t physical_memory() {
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  const auto size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0
    ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size)
    : std::numeric_limits<std::uint64_t>::max();
}

} // namespace

template <class T>
executor<T>::executor(std::shared_ptr<const plan> what, std::size_t threads)
  : state_(std::make_unique<state>()) {
  auto& s = *state_;
  threads = std::max<std::size_t>(threads, 1);
  s.what = std::move(what);
  // All pages will be touched: more memory than the system has would end the process.
  const auto bytes = s.what->arena_elements() * sizeof(T);
  if (const auto memory = physical_memory(); bytes > memory)
    throw input_error("a run of up to " + std::to_string(s.what->max_rows()) + " rows needs "
                      + std::to_string(bytes) + " bytes for its values; this machine has "
                      + std::to_string(memory));
  s.arena = make_aligned<T>(s.what->arena_elements());
  s.scratch_size = scratch_elements<T>(*s.what);
  s.scratch = make_aligned<T>(threads * s.scratch_size);
  s.partial_sums = make_aligned<T>(partial_elements(*s.what));
  if (threads > 1)
    s.team = std::make_unique<thread_team>(threads);
  for (const auto& x : s.what->instructions())
    s.register_count = std::max(s.register_count, x.inputs.size() + x.temporaries);
  s.registers.resize(threads * s.register_count);
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
void executor<T>::state::begin() {
  under_way.emplace();
  correct = counted = 0;
  for (const auto& part : what->zero_gradients())
    std::fill_n(gradient + part.begin, part.size(), T(0));
}

template <class T>
run_result executor<T>::run(const run_arguments<T>& arguments) {
  restart();
  if (const auto result = advance(arguments))
    return *result;
  throw std::invalid_argument("executor: weights are missing");
}

template <class T>
void executor<T>::restart() noexcept {
  state_->under_way.reset();
}

template <class T>
std::optional<run_result> executor<T>::advance(const run_arguments<T>& arguments) {
  auto& s = *state_;
  s.bind(arguments);
  if (!s.under_way)
    s.begin();
  auto& [i, bucket, loss] = *s.under_way;
  const auto& instructions = s.what->instructions();
  const auto& buckets = s.what->buckets();
  const bool complete = std::ranges::find(s.weights, nullptr) == s.weights.end();
  for (; i < instructions.size(); ++i) {
    if (!complete && (i + 1 == instructions.size() || s.misses_weights(instructions[i])))
      return std::nullopt;
    {
      const cpu::flush_denormals mode;
      s.execute(instructions[i]);
    }
    if (arguments.on_instruction)
      arguments.on_instruction(i);
    if (i == s.loss_instruction)
      loss = s.loss_of(instructions[i]);
    for (; bucket < buckets.size() && buckets[bucket].ready_after == i; ++bucket)
      if (arguments.on_bucket)
        arguments.on_bucket(bucket);
  }
  if (!complete)
    return std::nullopt;
  for (; bucket < buckets.size(); ++bucket) // of a plan without instructions
    if (arguments.on_bucket)
      arguments.on_bucket(bucket);
  if (const T* p = s.read(s.what->loss()); p != nullptr && s.loss_instruction == ~std::size_t{0})
    loss = static_cast<double>(*p); // a loss that is a constant, or a variable
  const run_result result{loss, s.correct, s.counted};
  s.under_way.reset();
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
  return memory_bytes(*state_->what, state_->team ? state_->team->size() : 1);
}

template <class T>
std::size_t executor<T>::memory_bytes(const plan& what, std::size_t threads) noexcept {
  return (what.arena_elements() + std::max<std::size_t>(threads, 1) * scratch_elements<T>(what)
          + partial_elements(what))
    * sizeof(T);
}

template class executor<float>;
template class executor<double>;

} // namespace troupe