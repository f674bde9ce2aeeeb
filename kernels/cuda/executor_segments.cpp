#include "kernels/cuda/executor_segments.hpp"

#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/executor_state.hpp"
#include "kernels/cuda/operation_table.hpp"
#include "kernels/devices/device_error.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cuda {

namespace {

converted conversion_of(const executor_state& s, const operand& from, const operand& to) {
  return {s.read(from), from.type, s.write(to), to.type, s.elements(to)};
}

/// Converts the operands of instruction i (before = true), or its results (before = false), in one
/// launch.
void convert_operands(executor_state& s, std::size_t i, bool before) {
  const auto& around = s.code.around[i];
  std::vector<converted> all;
  for (const auto& x : before ? around.before : around.after)
    all.push_back(before ? conversion_of(s, x.narrow, x.wide) : conversion_of(s, x.wide, x.narrow));
  convert(s.stream, all);
}

/// Submits work of an instruction. If the submission fails, the error names the instruction. With
/// gpu_options::check_kernels, the error also names the instruction if the work itself fails.
template <class F>
void submit_checked(executor_state& s, const instruction& x, F work) {
  const auto in_step = [&](const std::exception& error) {
    return std::string(error.what()) + ", in " + name_of(x) + " with " + std::to_string(s.rows)
      + " rows";
  };
  try {
    work();
    if (s.options.check_kernels)
      s.gpu.synchronize(s.stream);
  } catch (const device_error& error) {
    throw device_error(in_step(error));
  } catch (const std::invalid_argument& error) { // sizes that a kernel or cuBLAS cannot take
    throw device_error(in_step(error) + "; use a CPU for this model");
  }
}

void execute(executor_state& s, std::size_t i) {
  const auto& x = s.code.instructions[i];
  s.current = i;
  s.exact_loss = false;
  submit_checked(s, x, [&] {
    convert_operands(s, i, true);
    row_of(x.op).run({s, x});
    convert_operands(s, i, false);
  });
  if (i == s.loss_instruction && !s.exact_loss)
    to_double(s.stream, s.read(s.what->loss()), s.scalars.data() + loss_slot);
}

/// True for a cast of a weight or a feed. These casts do not depend on each other, so one launch
/// runs several casts.
bool is_cast_of_leaf(const instruction& x) {
  return x.op == operation::cast
    && (x.inputs[0].where == operand::place::weight || x.inputs[0].where == operand::place::feed);
}

/// Executes the consecutive casts of weights and feeds that begin with instruction `first`. Returns
/// the number of the instruction after them.
std::size_t execute_casts(executor_state& s, std::size_t first, std::size_t last) {
  std::vector<converted> all;
  auto i = first;
  for (; i < last && is_cast_of_leaf(s.code.instructions[i]); ++i) {
    const auto& x = s.code.instructions[i];
    all.push_back(conversion_of(s, x.inputs[0], x.output));
  }
  submit_checked(s, s.code.instructions[first], [&] { convert(s.stream, all); });
  return i;
}

/// Copies the loss to its slot if no instruction computes it: it is then a constant or a variable.
void copy_loss(executor_state& s) {
  const auto& loss = s.what->loss();
  if (loss.exists() && s.loss_instruction == ~std::size_t{0})
    to_double(s.stream, s.read(loss), s.scalars.data() + loss_slot);
}

/// Divides the gradient by the loss scale, if there is one.
void remove_scale(executor_state& s) {
  for (const auto& part : s.scaled) {
    auto* const x = s.gradient.data() + part.begin;
    by_channel(s.stream, channel_operation::multiply,
               {part.size(), 1, part.size(), x, s.unscale.data(), {}, x});
  }
}

} // namespace

std::string name_of(const instruction& x) {
  auto name = x.output.name;
  const auto look_at = [&](const operand& y) {
    if (y.where == operand::place::weight)
      name = y.name.substr(0, y.name.rfind('.'));
  };
  look_at(x.bias);
  std::ranges::for_each(x.inputs, look_at);
  return "\"" + name + "\" (" + std::string(to_string(x.op)) + ")";
}

void compute(executor_state& s, std::size_t k, function_ref<void(std::size_t)> on_instruction) {
  if (k == 0)
    for (const auto& part : s.what->zero_gradients())
      fill_zero(s.stream, part.size(), s.gradient.data() + part.begin);
  const auto [first, last] = s.segments()[k].instructions;
  for (auto i = first; i < last;) {
    auto end = i + 1;
    if (is_cast_of_leaf(s.code.instructions[i]))
      end = execute_casts(s, i, last);
    else
      execute(s, i);
    for (; i < end; ++i)
      if (on_instruction)
        on_instruction(i);
  }
  if (k + 1 < s.segments().size())
    return;
  copy_loss(s);
  if (s.stays)
    remove_scale(s);
  if (s.accumulates)
    add_in_order(s.stream, s.earlier.size(), {{s.gradient.data(), s.earlier.data()}},
                 s.gradient.data());
  if (s.stays)
    s.norm.submit(s.stream, s.gradient.data(), s.space.data());
}

namespace {

/// A segment is not recorded again after so many failures.
constexpr std::size_t most_failures = 3;

/// Records segment k between begin_recording() and end_recording(). After a failure, it still ends
/// the recording, because otherwise the stream would never run any work again.
std::unique_ptr<recording> record_all(executor_state& s, std::size_t k) {
  s.gpu.begin_recording(s.stream);
  try {
    compute(s, k, {});
  } catch (...) {
    try {
      s.gpu.end_recording(s.stream);
    } catch (const device_error&) { // the first error is the cause
    }
    throw;
  }
  return s.gpu.end_recording(s.stream);
}

/// Records segment k. Leaves x.work empty if this fails, for example because the GPU has too little
/// memory for a CUDA graph. The segment can then run without a recording. If the GPU itself has
/// failed, these launches report it.
void record(executor_state& s, std::size_t k, executor_state::recorded_segment& x) {
  try {
    x.work = record_all(s, k);
    x.counted = s.counted;
  } catch (const device_error& error) {
    if (++x.failures == most_failures && !std::exchange(s.noticed, true))
      s.notice = std::string("steps are not recorded as a CUDA graph, so they may take longer: ")
        + error.what();
  }
}

} // namespace

void compute_recorded(executor_state& s, std::size_t k) {
  auto& all = s.recorded[{s.rows, s.all_rows, s.current_feeds, s.stays, s.accumulates, s.by_rows}];
  all.resize(s.segments().size());
  auto& x = all[k];
  if (x.loaded && !x.work && x.failures < most_failures)
    record(s, k, x);
  if (!x.work) {
    compute(s, k, {});
    x.loaded = true;
    return;
  }
  if (x.counted)
    s.counted = x.counted;
  x.work->replay(s.stream);
}

void compute_sums(executor_state& s, std::size_t i, std::size_t n) {
  const auto& x = s.code.instructions[i];
  submit_checked(s, x, [&] {
    convert_operands(s, i, true);
    row_of(x.op).sums({s, x}, s.totals.data());
    s.totals.fetch(s.stream, 0, n);
  });
}

} // namespace troupe::cuda
