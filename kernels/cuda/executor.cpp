#include "kernels/cuda/executor.hpp"

#include "kernels/cpu/operation_table.hpp"
#include "kernels/cuda/executor_feeds.hpp"
#include "kernels/cuda/executor_segments.hpp"
#include "kernels/cuda/operation_table.hpp"
#include "kernels/cuda/size_limits.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "kernels/random.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cuda {

// -- a run

const float* executor_state::read(const operand& x) const {
  switch (x.where) {
  case operand::place::weight:
    return weights.data() + what->parameters().entries()[x.index].offset;
  case operand::place::feed:
    return feeds[current_feeds].values[x.index].data();
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
  check_sizes(what);
}

namespace {

/// The sizes of the work space of a plan, in elements.
struct space_sizes {
  std::size_t doubles = sum_space;
  /// Number of keys of dropout masks.
  std::size_t keys = 0;
  /// The largest number of sums over all workers that an instruction needs.
  std::size_t totals = 0;

  space_sizes(const plan& what, const widened_instructions& code) {
    for (const auto& x : code.instructions) {
      const auto& row = row_of(x.op);
      if (row.space != nullptr)
        doubles = std::max(doubles, row.space(x, what.max_rows()));
      keys += x.op == operation::dropout ? 1 : 0;
      totals = std::max(totals, cpu::sums_needed(x));
    }
  }
};

std::vector<norm_part> norm_parts_of(const plan& what) {
  if (!what.has_gradients())
    return {};
  return troupe::norm_parts_of(what.parameters(), {0, what.parameters().size()});
}

/// True if the gradient of the plan has the loss scale as a factor.
bool is_scaled(const plan& what) {
  return what.has_gradients() && what.loss_scale_feed();
}

void allocate_space(executor_state& s) {
  const space_sizes sizes{*s.what, s.code};
  s.space = {s.gpu, sizes.doubles};
  s.keys = {s.gpu, sizes.keys};
  s.totals = {s.gpu, sizes.totals};
  s.scalars = {s.gpu, scalar_slots};
  s.norm = {s.gpu, norm_parts_of(*s.what)};
  if (is_scaled(*s.what)) {
    s.unscale = {s.gpu, 1};
    for (const auto& x : norm_parts_of(*s.what))
      if (x.counts)
        s.scaled.push_back(x.where);
  }
  for (const auto& x : s.code.instructions)
    if (x.op == operation::dropout)
      s.key_of.emplace(&x, s.key_of.size());
}

std::size_t most_fetched(const plan& what) {
  std::size_t result = 0;
  for (const auto& x : what.fetches())
    result = std::max(result, x.shape.elements(what.max_rows()));
  return result;
}

void write_constants(executor_state& s) {
  for (const auto& constant : s.what->constants()) {
    std::vector<float> values(constant.where.shape.elements(s.what->max_rows()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(constant.values[constant.values.size() == 1 ? 0 : i]);
    s.gpu.copy_in(s.stream, s.write(constant.where), values.data(), values.size() * sizeof(float));
    s.gpu.synchronize(s.stream); // the copy may read `values` until then
  }
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
  if (arguments.accumulates && (!arguments.gradient.empty() || !s.options.accumulates))
    throw std::invalid_argument(
      "executor: a gradient that does not stay on the GPU, or an executor "
      "without gpu_options::accumulates, cannot accumulate");
}

/// Copies the weights to the device in pieces. While one piece is copied, the host gathers the next
/// one. If the run copies only rows of tables, these rows are the last piece.
void copy_weights(executor_state& s, const run_arguments<float>& arguments) {
  constexpr std::size_t piece = std::size_t{1} << 18;
  const auto& entries = s.what->parameters().entries();
  range gathered; // not yet sent
  const auto send = [&] {
    s.weights.send(s.stream, gathered.begin, gathered.size());
    gathered.begin = gathered.end;
  };
  for (std::size_t i = 0; i < arguments.weights.size(); ++i) {
    const auto tensor = entries[i].elements();
    if (s.by_rows && s.tables.is_table(i)) {
      send();
      gathered = {tensor.end, tensor.end};
      continue;
    }
    copy_weight(*s.what, arguments, i, {0, tensor.size()}, s.weights.host().data() + tensor.begin);
    gathered.end = tensor.end;
    if (gathered.size() >= piece)
      send();
  }
  send();
  if (s.by_rows && !arguments.weights.empty())
    s.tables.send_weights(s.stream, arguments, s.weights.data());
}

/// Decides whether the run copies only rows of tables, and selects these rows.
void choose_rows(executor_state& s, const run_arguments<float>& arguments) {
  s.by_rows = !s.stays && arguments.tables_cleared && arguments.table_rows != nullptr
    && s.tables.is_worth_packing(*arguments.table_rows);
  if (!s.by_rows)
    return;
  s.tables.select(s.stream, *arguments.table_rows);
  s.tables.clear_gradient(s.stream, s.gradient.data());
}

/// Waits for a run that did not end. Its copies may still read or write the pinned memory.
void wait_for_all(executor_state& s) {
  if (!s.in_flight)
    return;
  s.gpu.synchronize(s.stream);
  s.gpu.synchronize(s.copies);
  s.gpu.synchronize(s.uploads);
  s.in_flight = false;
}

void begin(executor_state& s, const run_arguments<float>& arguments) {
  constexpr std::size_t most_recordings = 16;
  wait_for_all(s);
  s.in_flight = true;
  s.rows = arguments.rows;
  s.stays = arguments.gradient.empty();
  s.accumulates = arguments.accumulates;
  if (s.accumulates && !arguments.replaces)
    s.gpu.copy_inside(s.stream, s.earlier.data(), s.gradient.data(), s.gradient.bytes());
  if (s.stays && !s.scaled.empty()) {
    const float inverse = 1 / arguments.feeds[*s.what->loss_scale_feed()].values[0];
    s.unscale.send(s.stream, {&inverse, 1});
  }
  s.counted.reset();
  s.all_rows.reset();
  if (s.recorded.size() > most_recordings)
    s.recorded.clear();
  choose_rows(s, arguments);
  copy_weights(s, arguments);
  copy_feeds(s, arguments);
  for (const auto& [x, i] : s.key_of)
    s.keys.host()[i] = stream_key(arguments.seed, {x->key});
  s.keys.send(s.stream, 0, s.keys.size());
  std::ranges::fill(s.scalars.host(), 0);
  s.scalars.send(s.stream, 0, s.scalars.size());
  s.under_way.emplace();
}

/// Submits the copies of a bucket to pinned memory. If the run copies only rows of tables, the rows
/// have been packed.
void fetch_bucket(executor_state& s, std::size_t bucket) {
  if (!s.by_rows) {
    const auto part = s.what->buckets()[bucket].elements;
    s.gradient.fetch(s.copies, part.begin, part.size());
    return;
  }
  for (const auto& part : s.tables.outside(bucket))
    s.gradient.fetch(s.copies, part.begin, part.size());
  s.tables.fetch_gradient(s.copies, bucket);
}

/// Copies a bucket from pinned memory to the caller's gradient.
void write_bucket(const executor_state& s, std::size_t bucket, std::span<float> gradient) {
  const auto write = [&](range part) {
    std::ranges::copy(s.gradient.host().subspan(part.begin, part.size()),
                      gradient.begin() + static_cast<std::ptrdiff_t>(part.begin));
  };
  if (!s.by_rows) {
    write(s.what->buckets()[bucket].elements);
    return;
  }
  std::ranges::for_each(s.tables.outside(bucket), write);
  s.tables.write_gradient(bucket, gradient);
}

/// Submits a segment, and the copies of its results to pinned memory.
void submit(executor_state& s, const run_arguments<float>& arguments, std::size_t k) {
  if (arguments.on_instruction || s.options.check_kernels)
    compute(s, k, arguments.on_instruction);
  else
    compute_recorded(s, k);
  const auto& x = s.segments()[k];
  const bool last = k + 1 == s.segments().size();
  if (!last && s.stays)
    return;
  if (s.by_rows)
    for (auto i = x.buckets.begin; i < x.buckets.end; ++i)
      s.tables.pack_gradient(s.stream, i, s.gradient.data());
  x.computed->record(s.stream);
  x.computed->hold(s.copies);
  if (s.stays)
    s.norm.fetch(s.copies);
  else
    for (auto i = x.buckets.begin; i < x.buckets.end; ++i)
      fetch_bucket(s, i);
  if (last)
    s.scalars.fetch(s.copies, 0, s.scalars.size());
  x.copied->record(s.copies);
}

/// Calls wait(), which waits for work of the run. If wait() fails, throws a device_error that names
/// the instructions that may have failed. The host has submitted `parts` segments: all instructions
/// before number `end`. A wait also fails if work of another submitted segment has failed.
/// Therefore, the error names all submitted segments for which the host has not waited yet.
template <class F>
void wait_for_parts(const executor_state& s, std::size_t parts, std::size_t end, F wait) {
  try {
    wait();
  } catch (const device_error& error) {
    const auto& code = s.code.instructions;
    const auto ended = s.under_way->ended;
    const auto first = s.segments()[ended].instructions.begin;
    const auto number = std::to_string(ended + 1);
    throw device_error(
      std::string(error.what()) + ", in "
      + (ended + 1 == parts ? "part " + number : "parts " + number + " to " + std::to_string(parts))
      + " of " + std::to_string(s.segments().size()) + " of a step with " + std::to_string(s.rows)
      + " rows"
      + (first == end ? "" : ", from " + name_of(code[first]) + " to " + name_of(code[end - 1]))
      + ". runtime { check_kernels: true } finds the operation");
  }
}

/// Waits for the results of segment k.
void wait_for_segment(executor_state& s, std::size_t k) {
  auto& here = *s.under_way;
  const auto end = s.segments()[here.submitted - 1].instructions.end;
  wait_for_parts(s, here.submitted, end, [&] { s.segments()[k].copied->wait(); });
  here.ended = k + 1;
}

/// Passes the buckets of all submitted segments to the caller, each as soon as it is in pinned
/// memory.
void deliver(executor_state& s, const run_arguments<float>& arguments) {
  for (auto& k = s.under_way->delivered; k < s.under_way->submitted; ++k) {
    const auto& x = s.segments()[k];
    const bool last = k + 1 == s.segments().size();
    if (!last && (arguments.gradient.empty() || x.buckets.empty()))
      continue;
    wait_for_segment(s, k);
    if (arguments.gradient.empty())
      continue;
    for (auto i = x.buckets.begin; i < x.buckets.end; ++i) {
      write_bucket(s, i, arguments.gradient);
      if (arguments.on_bucket)
        arguments.on_bucket(i);
    }
  }
}

/// True while the next segment waits for sums over all workers, that is, until give_sums() has
/// supplied them. The first call for such a segment computes this worker's part of the sums, and
/// passes it to on_sums. False if the segment needs no sums, or if there is no on_sums.
bool waits_for_sums(executor_state& s, const run_arguments<float>& arguments) {
  auto& here = *s.under_way;
  const auto [first, last] = s.segments()[here.submitted].instructions;
  if (first == last || !arguments.on_sums || here.given)
    return false;
  const auto& x = s.code.instructions[first];
  const auto n = cpu::sums_needed(x);
  if (n == 0)
    return false;
  if (!std::exchange(here.asked, true)) {
    compute_sums(s, first, n);
    wait_for_parts(s, here.submitted + 1, first + 1, [&] { s.gpu.synchronize(s.stream); });
    arguments.on_sums(s.totals.host().first(n));
  }
  return true;
}

/// Divides a plan into segments. A segment ends before an instruction that needs sums over workers.
/// If `by_bucket` is true, it also ends where a bucket is final. The bucket is then copied while
/// the next segments run. The last bucket does not end a segment, so it is copied after all
/// instructions of the plan.
std::vector<segment> segments_of(device& gpu, const plan& what, bool by_bucket) {
  const auto& buckets = what.buckets();
  const auto n = what.instructions().size();
  std::vector<segment> result(1);
  std::size_t bucket = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (cpu::sums_needed(what.instructions()[i]) > 0 && result.back().instructions.begin < i)
      result.push_back({{i, i}, {bucket, bucket}, nullptr, nullptr});
    result.back().instructions.end = i + 1;
    while (bucket < buckets.size() && buckets[bucket].ready_after == i)
      result.back().buckets.end = ++bucket;
    if (by_bucket && !result.back().buckets.empty() && bucket < buckets.size())
      result.push_back({{i + 1, i + 1}, {bucket, bucket}, nullptr, nullptr});
  }
  result.back().buckets.end = buckets.size(); // also if the plan has no instructions
  for (auto& x : result) {
    x.computed = gpu.make_event();
    x.copied = gpu.make_event();
  }
  return result;
}

} // namespace

executor_state::~executor_state() {
  try {
    gpu.enter(); // the members need this, too: their memory is freed next
    wait_for_all(*this);
    gpu.synchronize(uploads);       // copies of an announced batch that did not run
  } catch (const std::exception&) { // an error of work whose results are not needed
  }
}

void check_types(const device& where, const plan& what) {
  for (const auto& x : what.instructions()) {
    const bool product = traits_of(x.op).precision == operation_precision::product;
    if (product && !where.multiplies(x.inputs[0].type))
      throw device_error(
        "the GPU " + where.name() + " has no products of "
        + std::string(to_string(x.inputs[0].type))
        + ", which need compute capability 8.0 or newer. Use precision: FLOAT32 or "
          "FLOAT16, or a newer GPU");
  }
}

namespace {

bool has_products(operation op) {
  return op == operation::matmul || op == operation::batched_matmul || op == operation::recurrent
    || op == operation::recurrent_gradient;
}

/// The kinds of products that a plan has.
struct needed_products {
  bool any = false;
  bool with_epilogues = false;

  explicit needed_products(const plan& what) {
    for (const auto& x : what.instructions()) {
      any = any || has_products(x.op);
      const auto after = x.after.value_or(operation::end);
      const bool fits = after == operation::relu || after == operation::add
        || (after == operation::end && x.bias.exists());
      with_epilogues = with_epilogues || (x.op == operation::matmul && fits); // see has_epilogue
    }
  }
};

} // namespace

void prepare_products(device& where, const plan& what) {
  if (const needed_products needed{what}; needed.any)
    where.prepare_products(needed.with_epilogues);
}

std::size_t product_bytes(const plan& what) {
  const needed_products needed{what};
  return needed.any ? (needed.with_epilogues ? 2 : 1) * product_space_bytes : 0;
}

executor::executor(device& where, std::shared_ptr<const plan> what, const gpu_options& how)
  : state_(std::make_unique<executor_state>(where, std::move(what), how)) {
  auto& s = *state_;
  check_supported(*s.what);
  check_types(where, *s.what);
  prepare_products(where, *s.what);
  s.arena = {where, s.code.arena_elements};
  s.weights = {where, s.what->parameters().size()};
  s.gradient = {where, s.what->has_gradients() ? s.what->parameters().size() : 0};
  s.earlier = {where, how.accumulates ? s.gradient.size() : 0};
  allocate_feeds(s);
  allocate_space(s);
  s.fetched = {where, most_fetched(*s.what)};
  s.joined = segments_of(where, *s.what, false);
  if (s.what->has_gradients())
    s.by_bucket = segments_of(where, *s.what, true);
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
  if (!s.under_way)
    begin(s, arguments);
  auto& here = *s.under_way;
  for (; here.submitted < s.segments().size(); ++here.submitted) {
    if (waits_for_sums(s, arguments)) {
      copy_announced(s, arguments.next);
      deliver(s, arguments);
      return std::nullopt;
    }
    here.asked = here.given = false;
    submit(s, arguments, here.submitted);
  }
  copy_announced(s, arguments.next);
  deliver(s, arguments);
  s.under_way.reset();
  s.in_flight = false;
  const auto values = s.scalars.host();
  return run_result{values[loss_slot], static_cast<std::size_t>(values[correct_slot]),
                    s.counted.value_or(static_cast<std::size_t>(values[counted_slot])),
                    arguments.gradient.empty() ? s.norm.squared() : 0};
}

void executor::give_sums(std::span<const double> totals, std::size_t rows) {
  auto& s = *state_;
  const bool waits = s.under_way && s.under_way->asked && !s.under_way->given;
  if (!waits
      || cpu::sums_needed(
           s.what->instructions()[s.segments()[s.under_way->submitted].instructions.begin])
        != totals.size())
    throw std::invalid_argument("executor: " + std::to_string(totals.size())
                                + " sums over workers were not asked for");
  s.gpu.enter();
  s.totals.send(s.stream, totals);
  s.all_rows = rows;
  s.under_way->given = true;
}

std::span<const float> executor::fetched(std::size_t index) {
  auto& s = *state_;
  const auto& from = s.what->fetches().at(index);
  const auto n = s.elements(from);
  s.gpu.enter();
  if (n > 0) {
    s.gpu.copy_out(s.stream, s.fetched.data(), s.read(from), n * sizeof(float));
    s.gpu.synchronize(s.stream);
  }
  return {s.fetched.data(), n};
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

std::string executor::take_notice() {
  return std::exchange(state_->notice, {});
}

namespace {

/// Bytes that are allocated both in device memory and in pinned memory.
std::size_t staged_bytes(const plan& what, const space_sizes& space, std::size_t sparse_entries) {
  const auto floats =
    what.parameters().size() * (what.has_gradients() ? 2 : 1) + (is_scaled(what) ? 1 : 0);
  const auto doubles = scalar_slots + space.totals;
  return floats * sizeof(float) + doubles * sizeof(double)
    + gradient_norm::bytes(norm_parts_of(what)) + space.keys * sizeof(std::uint64_t)
    + feed_bytes(what, sparse_entries);
}

} // namespace

std::size_t executor::memory_bytes(const plan& what, std::size_t sparse_entries,
                                   const gpu_options& how) {
  const widened_instructions code{what, is_native};
  const space_sizes space{what, code};
  const auto earlier = how.accumulates && what.has_gradients() ? what.parameters().size() : 0;
  return staged_bytes(what, space, sparse_entries) + (code.arena_elements + earlier) * sizeof(float)
    + space.doubles * sizeof(double) + product_bytes(what);
}

std::size_t executor::pinned_bytes(const plan& what, std::size_t sparse_entries) {
  const widened_instructions code{what, is_native};
  return staged_bytes(what, {what, code}, sparse_entries) + most_fetched(what) * sizeof(float);
}

} // namespace troupe::cuda
