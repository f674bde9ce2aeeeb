#include "kernels/cpu/executor.hpp"

#include "kernels/cpu/conversions.hpp"
#include "kernels/cpu/flush_denormals.hpp"
#include "kernels/cpu/gemm.hpp"
#include "kernels/cpu/operation_table.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace troupe {

namespace {

/// Number of elements of scratch space per thread. A multiple of 16, so the parts of two threads
/// share no cache line.
template <class T>
std::size_t scratch_elements(const plan& what) {
  auto result = cpu::gemm_scratch_elements<T>();
  for (const auto& x : what.instructions())
    if (const auto scratch = cpu::row_of<T>(x.op).scratch)
      result = std::max(result, scratch(x, what.max_rows()));
  return (result + 15) / 16 * 16;
}

/// True if the CPU can run this instruction directly with values of 16 bits: it is a cast from or
/// to float32.
bool converts(const instruction& x) {
  return x.op == operation::cast && !(is_narrow(x.inputs[0].type) && is_narrow(x.output.type));
}

template <class T>
std::size_t shared_elements(const plan& what) {
  std::size_t result = 0;
  for (const auto& x : what.instructions())
    if (const auto shared = cpu::row_of<T>(x.op).shared)
      result = std::max(result, shared(x, what.max_rows()));
  return result;
}

[[noreturn]] void fail(const std::string& text) {
  throw std::invalid_argument("executor: " + text);
}

} // namespace

template <class T>
void check_feeds(const plan& what, std::size_t rows, std::span<const feed<T>> feeds) {
  if (rows > what.max_rows())
    fail(std::to_string(rows) + " rows, the plan is for " + std::to_string(what.max_rows()));
  if (feeds.size() != what.feed_count())
    fail(std::to_string(feeds.size()) + " feeds were given, the graph has "
         + std::to_string(what.feed_count()) + " placeholders");
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const auto& given = feeds[i];
    const auto type = what.feed(i).type;
    const bool fed = type == dtype::int32 ? given.labels != nullptr
      : type == dtype::sparse             ? given.sparse.starts != nullptr
                                          : given.values != nullptr;
    if (rows > 0 && what.reads_feed(i) && !fed)
      fail("placeholder \"" + what.feed(i).name + "\" was not fed with "
           + (type == dtype::int32      ? "labels"
                : type == dtype::sparse ? "sparse rows"
                                        : "values"));
  }
}

template void check_feeds(const plan&, std::size_t, std::span<const feed<float>>);
template void check_feeds(const plan&, std::size_t, std::span<const feed<double>>);

template <class T>
void executor_state<T>::bind(const run_arguments<T>& arguments) {
  check_feeds(*what, arguments.rows, arguments.feeds);
  if (arguments.weights.size() != weights.size())
    fail(std::to_string(arguments.weights.size()) + " weights were bound, the layout has "
         + std::to_string(weights.size()));
  if (what->has_gradients() && arguments.gradient.size() != what->parameters().size())
    fail("the gradient has " + std::to_string(arguments.gradient.size())
         + " elements, the layout has " + std::to_string(what->parameters().size()));
  rows = arguments.rows;
  std::ranges::copy(arguments.weights, weights.begin());
  std::ranges::copy(arguments.feeds, feeds.begin());
  parts = arguments.parts;
  gradient = arguments.gradient.data();
  tables_cleared = arguments.tables_cleared;
  seed = arguments.seed;
}

template <class T>
const T* executor_state<T>::read(const operand& x) const {
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
T* executor_state<T>::write(const operand& x) const {
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
void executor_state<T>::write_scalar(const operand& where, double value) {
  scalar = value;
  if (T* p = write(where))
    *p = static_cast<T>(value);
}

/// The value of the loss after its instruction has run. It has the precision of double if the
/// instruction itself sums over samples. Otherwise, it was rounded to T.
template <class T>
double executor_state<T>::loss() const {
  return scalar ? *scalar : static_cast<double>(*read(what->loss()));
}

template <class T>
executor_state<T>::executor_state(std::shared_ptr<const plan> instructions)
  : what(std::move(instructions)), code(*what, converts) {}

template <class T>
void executor_state<T>::convert(const operand& from, const operand& to) {
  const auto* const first = reinterpret_cast<const std::byte*>(read(from));
  auto* const out = reinterpret_cast<std::byte*>(write(to));
  const auto size = [](const operand& x) {
    return is_narrow(x.type) ? size_of(x.type) : sizeof(T);
  };
  split(elements(to), least_elements, [&](range part, std::size_t) {
    const auto* const source = first + part.begin * size(from);
    auto* const target = out + part.begin * size(to);
    if (is_narrow(from.type))
      cpu::widen<T>(from.type, part.size(), source, reinterpret_cast<T*>(target));
    else if (is_narrow(to.type))
      cpu::narrow<T>(to.type, part.size(), reinterpret_cast<const T*>(source), target);
    else
      std::memcpy(target, source, part.size() * sizeof(T));
  });
}

template <class T>
void executor_state<T>::execute(std::size_t i) {
  const auto& x = code.instructions[i];
  const auto& around = code.around[i];
  for (const auto& operand : around.before)
    convert(operand.narrow, operand.wide);
  scalar.reset();
  cpu::row_of<T>(x.op).run({*this, x});
  for (const auto& operand : around.after)
    convert(operand.wide, operand.narrow);
}

template <class T>
bool executor_state<T>::has_sums(const run_arguments<T>& arguments) {
  auto& here = *under_way;
  auto& mine = sums[here.instruction];
  if (mine.empty() || !arguments.on_sums || here.given)
    return true;
  if (!std::exchange(here.asked, true)) {
    const auto& x = code.instructions[here.instruction];
    const cpu::flush_denormals mode;
    for (const auto& operand : code.around[here.instruction].before)
      convert(operand.narrow, operand.wide);
    cpu::row_of<T>(x.op).sums({*this, x}, mine.data());
    arguments.on_sums(mine);
  }
  return false;
}

namespace {

/// The size of the physical memory in bytes. If the system does not report it, the largest number.
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
  : state_(std::make_unique<executor_state<T>>(std::move(what))) {
  auto& s = *state_;
  threads = std::max<std::size_t>(threads, 1);
  // make_aligned() writes to all pages. If they needed more memory than the machine has, the system
  // would kill the process. Therefore, an error is thrown here.
  const auto bytes = s.code.arena_elements * sizeof(T);
  if (const auto memory = physical_memory(); bytes > memory)
    throw input_error("a run of up to " + std::to_string(s.what->max_rows()) + " rows needs "
                      + std::to_string(bytes) + " bytes for its values; this machine has "
                      + std::to_string(memory));
  s.arena = make_aligned<T>(s.code.arena_elements);
  s.scratch_size = scratch_elements<T>(*s.what);
  s.scratch = make_aligned<T>(threads * s.scratch_size);
  s.shared = make_aligned<T>(shared_elements<T>(*s.what));
  if (threads > 1)
    s.team = std::make_unique<thread_team>(threads);
  for (const auto& x : s.what->instructions())
    s.register_count = std::max(s.register_count, x.inputs.size() + x.temporaries);
  s.registers.resize(threads * s.register_count);
  for (const auto& x : s.code.instructions)
    s.sums.emplace_back(cpu::sums_needed(x));
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
void executor_state<T>::begin() {
  under_way.emplace();
  all_rows.reset();
  correct = counted = 0;
  for (const auto& part : what->zero_gradients())
    std::fill_n(gradient + part.begin, part.size(), T(0));
}

template <class T>
run_result executor<T>::run(const run_arguments<T>& arguments) {
  restart();
  if (const auto result = advance(arguments))
    return *result;
  throw std::invalid_argument("executor: weights, or sums over workers, are missing");
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
  auto& [i, bucket, loss, asked, given] = *s.under_way;
  const auto& instructions = s.code.instructions;
  const auto& buckets = s.what->buckets();
  const bool complete = std::ranges::find(s.weights, nullptr) == s.weights.end();
  for (; i < instructions.size(); ++i) {
    if (!complete && (i + 1 == instructions.size() || s.misses_weights(instructions[i])))
      return std::nullopt;
    if (!s.has_sums(arguments))
      return std::nullopt;
    asked = given = false;
    {
      const cpu::flush_denormals mode;
      s.execute(i);
    }
    if (arguments.on_instruction)
      arguments.on_instruction(i);
    if (i == s.loss_instruction)
      loss = s.loss();
    for (; bucket < buckets.size() && buckets[bucket].ready_after == i; ++bucket)
      if (arguments.on_bucket)
        arguments.on_bucket(bucket);
  }
  if (!complete)
    return std::nullopt;
  for (; bucket < buckets.size(); ++bucket) // a plan without instructions
    if (arguments.on_bucket)
      arguments.on_bucket(bucket);
  if (const T* p = s.read(s.what->loss()); p != nullptr && s.loss_instruction == ~std::size_t{0})
    loss = static_cast<double>(*p); // the loss is a constant or a variable
  const run_result result{loss, s.correct, s.counted};
  s.under_way.reset();
  return result;
}

template <class T>
void executor<T>::give_sums(std::span<const double> totals, std::size_t rows) {
  auto& s = *state_;
  const bool waits = s.under_way && s.under_way->asked && !s.under_way->given;
  if (!waits || s.sums[s.under_way->instruction].size() != totals.size())
    throw std::invalid_argument("executor: " + std::to_string(totals.size())
                                + " sums over workers were not requested");
  std::ranges::copy(totals, s.sums[s.under_way->instruction].begin());
  s.all_rows = rows;
  s.under_way->given = true;
}

// Why the weight of a dense product needs at least two columns: a product with one column adds its
// terms in another order, in 32 chains (gemm.hpp). With the weight in several pieces, a sum would
// be computed for each piece, and these sums would be added. The bits could differ.
bool may_be_cut(const plan& what, std::size_t weight) {
  const auto& matrix = what.parameters().entries()[weight].shape;
  const auto reads = [weight](const operand& x) {
    return x.where == operand::place::weight && x.index == weight;
  };
  const auto by_rows = [&](const instruction& x, std::size_t input) {
    return x.inputs[input].shape == matrix
      && ((x.op == operation::matmul && input == 1 && matrix.last() > 1)
          || (x.op == operation::sparse_matmul && input == 1)
          || (x.op == operation::embedding && input == 0));
  };
  if (matrix.rank() != 2 || reads(what.loss()) || std::ranges::any_of(what.fetches(), reads))
    return false;
  for (const auto& x : what.instructions()) {
    if (reads(x.bias) || reads(x.epilogue_operand))
      return false;
    for (std::size_t i = 0; i < x.inputs.size(); ++i)
      if (reads(x.inputs[i]) && !by_rows(x, i))
        return false;
  }
  return true;
}

std::vector<std::size_t> sums_over_workers(const plan& what) {
  std::vector<std::size_t> result;
  for (const auto& x : what.instructions())
    if (const auto n = cpu::sums_needed(x); n > 0)
      result.push_back(n);
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
  const auto arena = widened_instructions{what, converts}.arena_elements;
  return (arena + std::max<std::size_t>(threads, 1) * scratch_elements<T>(what)
          + shared_elements<T>(what))
    * sizeof(T);
}

template struct executor_state<float>;
template struct executor_state<double>;
template class executor<float>;
template class executor<double>;

} // namespace troupe
