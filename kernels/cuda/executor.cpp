#include "kernels/cuda/executor.hpp"

#include "kernels/cpu/operation_table.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/operation_table.hpp"
#include "kernels/error.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>

namespace troupe::cuda {

// -- a run

const float* executor_state::read(const operand& x) const {
  switch (x.where) {
  case operand::place::weight:
    return weights.data() + what->parameters().entries()[x.index].offset;
  case operand::place::feed:
    return values[x.index].data();
  default:
    return write(x);
  }
}

float* executor_state::write(const operand& x) const {
  switch (x.where) {
  case operand::place::arena:
    return arena.data() + x.index;
  case operand::place::gradient:
    return gradient.data() + x.index;
  default:
    return nullptr;
  }
}

std::size_t executor_state::extents(const operand& x, std::size_t first, std::size_t last) const {
  std::size_t result = 1;
  for (auto axis = first; axis < last; ++axis)
    result *= extent(x, axis);
  return result;
}

scalar_result executor_state::scalar(const operand& out) {
  if (current != loss_instruction || !out.exists())
    return {nullptr, write(out)};
  exact_loss = true;
  return {scalars.data() + loss_slot, write(out)};
}

void check_supported(const plan& what) {
  for (const auto& x : what.instructions())
    if (row_of(x.op).run == nullptr)
      throw input_error("\"" + x.output.name + "\": a GPU cannot compute "
                        + std::string(to_string(x.op)) + " yet; use a CPU for this model");
}

namespace {

/// True if the plan reads a sparse feed column by column.
bool reads_columns(const plan& what, std::size_t feed) {
  return std::ranges::any_of(what.instructions(), [&](const instruction& x) {
    return x.op == operation::sparse_matmul_gradient && x.inputs[0].index == feed;
  });
}

/// Feeds that the plan reads, each for max_rows samples.
void allocate_feeds(executor_state& s) {
  const auto& what = *s.what;
  s.values.resize(what.feed_count());
  s.labels.resize(what.feed_count());
  for (std::size_t i = 0; i < what.feed_count(); ++i) {
    if (!what.reads_feed(i))
      continue;
    if (what.feed(i).type == dtype::sparse) {
      const auto features = static_cast<std::size_t>(what.feed(i).shape.last());
      s.sparse.emplace(i, sparse_feed{s.gpu, what.max_rows(), features, reads_columns(what, i)});
      continue;
    }
    const auto n = what.feed(i).shape.elements(what.max_rows());
    if (what.feed(i).type == dtype::int32)
      s.labels[i] = {s.gpu, n};
    else
      s.values[i] = {s.gpu, n};
  }
}

/// Work space of a plan, in elements.
struct space_sizes {
  std::size_t doubles = sum_space;
  std::size_t positions = 0;
  /// Number of keys of dropout masks.
  std::size_t keys = 0;
  /// Most sums over all workers of an instruction.
  std::size_t totals = 0;

  explicit space_sizes(const plan& what) {
    for (const auto& x : what.instructions()) {
      const auto& row = row_of(x.op);
      if (row.space != nullptr)
        doubles = std::max(doubles, row.space(x, what.max_rows()));
      if (row.positions != nullptr)
        positions = std::max(positions, row.positions(x, what.max_rows()));
      keys += x.op == operation::dropout ? 1 : 0;
      totals = std::max(totals, cpu::sums_needed(x));
    }
  }
};

void allocate_space(executor_state& s) {
  const space_sizes sizes{*s.what};
  s.space = {s.gpu, sizes.doubles};
  s.positions = {s.gpu, sizes.positions};
  s.keys = {s.gpu, sizes.keys};
  s.totals = {s.gpu, sizes.totals};
  s.scalars = {s.gpu, scalar_slots};
  for (const auto& x : s.what->instructions())
    if (x.op == operation::dropout)
      s.key_of.emplace(&x, s.key_of.size());
}

void write_constants(executor_state& s) {
  for (const auto& constant : s.what->constants()) {
    std::vector<float> values(constant.where.shape.elements(s.what->max_rows()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(constant.values[constant.values.size() == 1 ? 0 : i]);
    s.gpu.copy_in(s.stream, s.write(constant.where), values.data(), values.size() * sizeof(float));
  }
  s.gpu.synchronize(s.stream);
}

void check(const executor_state& s, const run_arguments<float>& arguments) {
  check_feeds<float>(*s.what, arguments.rows, arguments.feeds);
  const auto tensors = s.what->parameters().entries().size();
  if (!arguments.weights.empty() && arguments.weights.size() != tensors)
    throw std::invalid_argument("executor: " + std::to_string(arguments.weights.size())
                                + " weights were bound, the layout has " + std::to_string(tensors));
  if (!arguments.gradient.empty() && arguments.gradient.size() != s.gradient.size())
    throw std::invalid_argument("executor: the gradient has "
                                + std::to_string(arguments.gradient.size())
                                + " elements, the layout has " + std::to_string(s.gradient.size()));
}

void copy_weights(executor_state& s, const run_arguments<float>& arguments) {
  const auto& entries = s.what->parameters().entries();
  for (std::size_t i = 0; i < arguments.weights.size(); ++i)
    if (entries[i].size > 0)
      s.gpu.copy_in(s.stream, s.weights.data() + entries[i].offset, arguments.weights[i],
                    entries[i].size * sizeof(float));
}

void copy_feeds(executor_state& s, const run_arguments<float>& arguments) {
  for (std::size_t i = 0; i < s.what->feed_count(); ++i) {
    if (!s.what->reads_feed(i))
      continue;
    if (const auto found = s.sparse.find(i); found != s.sparse.end()) {
      if (found->second.copy(s.stream, arguments.feeds[i].sparse, s.rows))
        s.recorded.clear(); // they hold the old places
      continue;
    }
    const auto n = s.what->feed(i).shape.elements(s.rows);
    if (n == 0)
      continue;
    if (s.labels[i].size() > 0)
      s.gpu.copy_in(s.stream, s.labels[i].data(), arguments.feeds[i].labels,
                    n * sizeof(std::int32_t));
    else
      s.gpu.copy_in(s.stream, s.values[i].data(), arguments.feeds[i].values, n * sizeof(float));
  }
}

void begin(executor_state& s, const run_arguments<float>& arguments) {
  s.rows = arguments.rows;
  s.counted.reset();
  s.all_rows.reset();
  copy_weights(s, arguments);
  copy_feeds(s, arguments);
  std::vector<std::uint64_t> keys(s.keys.size());
  for (const auto& [x, i] : s.key_of)
    keys[i] = stream_key(arguments.seed, {x->key});
  if (!keys.empty())
    s.gpu.copy_in(s.stream, s.keys.data(), keys.data(), s.keys.bytes());
  constexpr std::array<double, scalar_slots> zeros{};
  s.gpu.copy_in(s.stream, s.scalars.data(), zeros.data(), s.scalars.bytes());
}

void clear_gradients(executor_state& s) {
  for (const auto& part : s.what->zero_gradients())
    fill_zero(s.stream, part.size(), s.gradient.data() + part.begin);
}

void execute(executor_state& s, std::size_t i) {
  const auto& x = s.what->instructions()[i];
  s.current = i;
  s.exact_loss = false;
  row_of(x.op).run({s, x});
  if (i == s.loss_instruction && !s.exact_loss)
    to_double(s.stream, s.read(s.what->loss()), s.scalars.data() + loss_slot);
}

/// The part of the gradient that is final, to the host.
void hand_over(executor_state& s, const run_arguments<float>& arguments, std::size_t bucket) {
  if (arguments.gradient.empty())
    return;
  const auto part = s.what->buckets()[bucket].elements;
  s.gpu.copy_out(s.stream, arguments.gradient.data() + part.begin, s.gradient.data() + part.begin,
                 part.size() * sizeof(float));
  s.gpu.synchronize(s.stream);
  if (arguments.on_bucket)
    arguments.on_bucket(bucket);
}

/// If the loss is a constant, or a variable.
void copy_loss(executor_state& s) {
  const auto& loss = s.what->loss();
  if (loss.exists() && s.loss_instruction == ~std::size_t{0})
    to_double(s.stream, s.read(loss), s.scalars.data() + loss_slot);
}

/// All work of a run, recorded. A stream that a failure leaves in the middle of a recording would
/// do nothing any more.
std::unique_ptr<recording> record(executor_state& s) {
  s.gpu.begin_recording(s.stream);
  try {
    clear_gradients(s);
    for (std::size_t i = 0; i < s.what->instructions().size(); ++i)
      execute(s, i);
    copy_loss(s);
  } catch (const device_error&) {
    try {
      s.gpu.end_recording(s.stream);
    } catch (const device_error&) { // the first error is the cause
    }
    throw;
  }
  return s.gpu.end_recording(s.stream);
}

/// Results stay on the device: one submission, recorded by the first run of so many rows.
void run_recorded(executor_state& s) {
  constexpr std::size_t most_recordings = 8;
  auto found = s.recorded.find(s.rows);
  if (found == s.recorded.end()) {
    if (s.recorded.size() >= most_recordings)
      s.recorded.clear();
    auto work = record(s);
    found =
      s.recorded.emplace(s.rows, executor_state::recorded_run{std::move(work), s.counted}).first;
  }
  s.counted = found->second.counted;
  found->second.work->replay(s.stream);
}

/// False if the current instruction waits for sums over all workers.
bool has_sums(executor_state& s, const run_arguments<float>& arguments) {
  auto& here = *s.under_way;
  const auto& x = s.what->instructions()[here.instruction];
  const auto n = cpu::sums_needed(x);
  if (n == 0 || !arguments.on_sums || here.given)
    return true;
  if (!std::exchange(here.asked, true)) {
    row_of(x.op).sums({s, x}, s.totals.data());
    std::vector<double> mine(n);
    s.gpu.copy_out(s.stream, mine.data(), s.totals.data(), n * sizeof(double));
    s.gpu.synchronize(s.stream);
    arguments.on_sums(mine);
  }
  return false;
}

/// False if it has stopped for sums over all workers.
bool run_by_step(executor_state& s, const run_arguments<float>& arguments) {
  auto& [i, bucket, asked, given] = *s.under_way;
  const auto& buckets = s.what->buckets();
  for (; i < s.what->instructions().size(); ++i) {
    if (!has_sums(s, arguments))
      return false;
    asked = given = false;
    execute(s, i);
    if (arguments.on_instruction)
      arguments.on_instruction(i);
    for (; bucket < buckets.size() && buckets[bucket].ready_after == i; ++bucket)
      hand_over(s, arguments, bucket);
  }
  for (; bucket < buckets.size(); ++bucket) // of a plan without instructions
    hand_over(s, arguments, bucket);
  copy_loss(s);
  return true;
}

run_result result_of(executor_state& s) {
  std::array<double, scalar_slots> values{};
  s.gpu.copy_out(s.stream, values.data(), s.scalars.data(), s.scalars.bytes());
  s.gpu.synchronize(s.stream);
  return {values[loss_slot], static_cast<std::size_t>(values[correct_slot]),
          s.counted.value_or(static_cast<std::size_t>(values[counted_slot]))};
}

} // namespace

executor::executor(device& where, std::shared_ptr<const plan> what)
  : state_(std::make_unique<executor_state>(where, std::move(what))) {
  auto& s = *state_;
  check_supported(*s.what);
  s.arena = {where, s.what->arena_elements()};
  s.weights = {where, s.what->parameters().size()};
  s.gradient = {where, s.what->has_gradients() ? s.what->parameters().size() : 0};
  allocate_feeds(s);
  allocate_space(s);
  const auto& loss = s.what->loss();
  for (std::size_t i = 0; i < s.what->instructions().size(); ++i) {
    const auto& output = s.what->instructions()[i].output;
    if (loss.exists() && output.where == loss.where && output.index == loss.index)
      s.loss_instruction = i;
  }
  write_constants(s);
}

executor::~executor() = default;
executor::executor(executor&&) noexcept = default;
executor& executor::operator=(executor&&) noexcept = default;

run_result executor::run(const run_arguments<float>& arguments) {
  restart();
  if (const auto result = advance(arguments))
    return *result;
  throw std::invalid_argument("executor: sums over workers are missing");
}

void executor::restart() noexcept {
  state_->under_way.reset();
}

std::optional<run_result> executor::advance(const run_arguments<float>& arguments) {
  auto& s = *state_;
  check(s, arguments);
  s.gpu.enter();
  const bool begins = !s.under_way;
  if (begins)
    begin(s, arguments);
  if (arguments.gradient.empty() && !arguments.on_instruction && !arguments.on_sums) {
    run_recorded(s);
    return result_of(s);
  }
  if (begins) {
    clear_gradients(s);
    s.under_way.emplace();
  }
  if (!run_by_step(s, arguments))
    return std::nullopt;
  s.under_way.reset();
  return result_of(s);
}

void executor::give_sums(std::span<const double> totals, std::size_t rows) {
  auto& s = *state_;
  const bool waits = s.under_way && s.under_way->asked && !s.under_way->given;
  if (!waits || cpu::sums_needed(s.what->instructions()[s.under_way->instruction]) != totals.size())
    throw std::invalid_argument("executor: " + std::to_string(totals.size())
                                + " sums over workers were not asked for");
  s.gpu.enter();
  s.gpu.copy_in(s.stream, s.totals.data(), totals.data(), totals.size_bytes());
  s.all_rows = rows;
  s.under_way->given = true;
}

std::span<const float> executor::fetched(std::size_t index) {
  auto& s = *state_;
  const auto& from = s.what->fetches().at(index);
  s.fetched.resize(s.elements(from));
  s.gpu.enter();
  if (!s.fetched.empty()) {
    s.gpu.copy_out(s.stream, s.fetched.data(), s.read(from), s.fetched.size() * sizeof(float));
    s.gpu.synchronize(s.stream);
  }
  return s.fetched;
}

std::span<float> executor::weights() const noexcept {
  return {state_->weights.data(), state_->weights.size()};
}

std::span<float> executor::gradient() const noexcept {
  return {state_->gradient.data(), state_->gradient.size()};
}

stream executor::where() const noexcept {
  return state_->stream;
}

const plan& executor::what() const noexcept {
  return *state_->what;
}

std::size_t executor::memory_bytes(const plan& what) {
  const space_sizes space{what};
  const auto parameters = what.parameters().size();
  auto floats = what.arena_elements() + parameters * (what.has_gradients() ? 2 : 1);
  std::size_t sparse = 0;
  for (std::size_t i = 0; i < what.feed_count(); ++i)
    if (what.reads_feed(i) && what.feed(i).type == dtype::sparse)
      sparse += sparse_feed::memory_bytes(what.max_rows());
    else if (what.reads_feed(i))
      floats += what.feed(i).shape.elements(what.max_rows());
  // Labels and positions have the size of floats.
  return (floats + space.positions) * sizeof(float)
    + (space.doubles + scalar_slots + space.totals) * sizeof(double) + sparse
    + space.keys * sizeof(std::uint64_t);
}

} // namespace troupe::cuda
