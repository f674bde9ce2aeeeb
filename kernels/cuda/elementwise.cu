#include "kernels/cuda/elementwise.hpp"

#include "kernels/cpu/dropout_mask.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

namespace troupe::cuda {

namespace {

/// Where a step of a chain finds an operand: the number of an input or of a temporary (chain_step),
/// or one of these values.
enum chain_source : std::uint8_t {
  /// The result of the previous step, which is still in registers.
  from_last_step = 254,
  /// The operation does not have this operand.
  from_nowhere = 255,
};

/// An element_step that takes less memory, because the arguments of a kernel are at most 4 KiB.
/// Operand numbers below the number of inputs are inputs. Larger numbers are temporaries.
struct chain_step {
  operation op;
  std::uint8_t a, b, c, result;
  /// True if a step other than the next one reads the result. The result is then kept in shared
  /// memory.
  bool is_kept;
  float factor;
};

/// Calls apply() for each element of a pack. The `switch` on the operation runs only once per pack.
template <unsigned W>
TROUPE_DEVICE pack<float, W> apply_all(operation op, const pack<float, W>& first,
                                       const pack<float, W>& second, const pack<float, W>& third,
                                       float factor) {
  pack<float, W> y{};
#define TROUPE_ELEMENT_CASE(kind, name, formula)                                                   \
  case operation::name:                                                                            \
    TROUPE_UNROLL                                                                                  \
    for (unsigned k = 0; k < W; ++k)                                                               \
      y.x[k] = apply(operation::name, first.x[k], second.x[k], third.x[k], factor);                \
    break;
  switch (op) {
    TROUPE_ELEMENTS(TROUPE_ELEMENT_CASE)
  default:
    break;
  }
#undef TROUPE_ELEMENT_CASE
  return y;
}

/// Runs a chain (instruction::program). The chain is the same for all threads, so the threads of a
/// warp always take the same branch. The next step finds the result of a step in registers. Results
/// that later steps read (temporaries) are in shared memory, because registers cannot be indexed at
/// run time. The shape of this memory is (temporaries, block_threads, width_of_space).
template <bool Mixed>
struct chain_kernel {
  using input_view = std::conditional_t<Mixed, mixed_view, view<const float>>;
  using output_view = std::conditional_t<Mixed, mixed_target, view<float>>;
  /// The number of elements of a pack. If all elements have the smallest type, a pack has 16 bytes.
  static constexpr unsigned chain_width = Mixed ? 8 : pack_width;
  chain_step steps[most_chain_steps];
  const void* inputs[most_chain_inputs]; // (n) each
  output_view out;                       // (n)
  loop_of_packs<chain_width> all;
  unsigned step_count;
  unsigned input_count;
  unsigned temporaries;
  /// Elements of a temporary in shared memory per thread: chain_width, or 1.
  unsigned width_of_space;
  /// The types of the inputs. Not used if Mixed is false: then all types are float32.
  dtype types[Mixed ? most_chain_inputs : 1];

  TROUPE_DEVICE input_view input(unsigned number) const {
    if constexpr (Mixed)
      return {inputs[number], out.size, types[number]};
    else
      return {static_cast<const float*>(inputs[number]), out.size};
  }
  TROUPE_DEVICE std::size_t place(const thread& t, unsigned number) const {
    return ((number - input_count) * block_threads + t.index()) * width_of_space;
  }
  template <unsigned W>
  TROUPE_DEVICE pack<float, W> operand(const thread& t, const view<float>& space, unsigned number,
                                       const pack<float, W>& last, std::size_t i) const {
    if (number == from_nowhere)
      return {};
    if (number == from_last_step)
      return last;
    if (number < input_count)
      return load_floats(width<W>{}, input(number), i);
    return space.template load_pack<W>(place(t, number));
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<float>(std::size_t{temporaries} * block_threads * width_of_space);
    all.visit(t, [&]<unsigned W>(width<W>, std::size_t i) {
      pack<float, W> y{};
      for (unsigned s = 0; s < step_count; ++s) {
        const auto& x = steps[s];
        const auto a = operand(t, space, x.a, y, i);
        const auto b = operand(t, space, x.b, y, i);
        const auto c = operand(t, space, x.c, y, i);
        y = apply_all(x.op, a, b, c, x.factor);
        if (x.is_kept)
          space.store_pack(place(t, x.result), y);
      }
      store_floats(out, i, y);
    });
  }
};

template <class In, class Out>
struct channel_kernel {
  In x;
  view<const float> b;
  In operand;
  Out out;
  element_loop all;
  divider inner, channels;
  channel_operation how;
  operation after;
  /// True if neighbouring elements belong to neighbouring channels. If it is false, all elements of
  /// a pack belong to the same channel.
  bool by_column;

  template <unsigned W>
  TROUPE_DEVICE pack<float, W> of_channel(width<W> n, std::size_t i) const {
    const auto c = channels(inner.quotient(i)).rest;
    if (by_column)
      return load_floats(n, b, c);
    pack<float, W> result;
    const auto own = b.load(c);
    TROUPE_UNROLL
    for (unsigned k = 0; k < W; ++k)
      result.x[k] = own;
    return result;
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    all.visit(t, [&]<unsigned W>(width<W> n, std::size_t i) {
      auto y = of_channel(n, i);
      if (how != channel_operation::broadcast) {
        const auto from = load_floats(n, x, i);
        TROUPE_UNROLL
        for (unsigned k = 0; k < W; ++k)
          y.x[k] = how == channel_operation::add ? from.x[k] + y.x[k] : from.x[k] * y.x[k];
      }
      if (after != operation::end) {
        const auto second = operand.data != nullptr ? load_floats(n, operand, i) : y;
        y = apply_all(after, y, second, y, 1);
      }
      store_floats(out, i, y);
    });
  }
};

struct to_float_kernel {
  view<const std::int32_t> x;
  view<float> out;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride())
      out.store(i, static_cast<float>(x.load(i)));
  }
};

struct to_double_kernel {
  view<const float> x;
  view<double> out;

  TROUPE_DEVICE void operator()(const thread& t) const {
    if (t.first() == 0)
      out.store(0, static_cast<double>(x.load(0)));
  }
};

template <class T>
struct zero_kernel {
  view<T> out;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride())
      out.store(i, T{});
  }
};

template <class In, class Out>
struct dropout_kernel {
  In x;
  view<const std::uint64_t> key;
  Out out;
  element_loop all;
  std::int32_t threshold;
  float factor;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto own = key.load(0);
    all.visit(t, [&]<unsigned W>(width<W> n, std::size_t i) {
      auto y = load_floats(n, x, i);
      TROUPE_UNROLL
      for (unsigned k = 0; k < W; ++k)
        y.x[k] = cpu::dropout_bits(i + k, own) >= threshold ? y.x[k] * factor : 0;
      store_floats(out, i, y);
    });
  }
};

} // namespace

namespace {

void check_chain(std::span<const element_step> program, std::size_t inputs,
                 std::size_t temporaries) {
  if (program.size() > most_chain_steps || inputs > most_chain_inputs
      || temporaries > most_chain_temporaries)
    throw std::invalid_argument("elementwise: the chain is too long for a kernel");
}

/// Writes the steps of a chain to `steps`, as the kernel needs them. Returns the number of
/// temporaries in shared memory.
std::size_t encode_chain(std::span<const element_step> program, std::size_t inputs,
                         std::span<chain_step> steps) {
  /// Both arrays have an element for each operand number. `writer` is the step that wrote the
  /// operand last. `places` is the position of the operand among the temporaries in shared memory,
  /// counted from 1; 0 if the operand is not in shared memory.
  constexpr auto never = ~std::size_t{0};
  std::array<std::size_t, 256> writer{};
  std::array<std::uint8_t, 256> places{};
  writer.fill(never);
  std::size_t kept = 0;
  const auto source = [&](std::size_t s, std::uint32_t number, unsigned position) -> std::uint8_t {
    if (position >= operand_count(program[s].op))
      return from_nowhere;
    if (number < inputs)
      return static_cast<std::uint8_t>(number);
    const auto from = writer[number];
    if (from + 1 == s)
      return from_last_step;
    if (places[number] == 0)
      places[number] = static_cast<std::uint8_t>(++kept);
    steps[from].is_kept = true;
    steps[from].result = static_cast<std::uint8_t>(inputs + places[number] - 1);
    return steps[from].result;
  };
  for (std::size_t s = 0; s < program.size(); ++s) {
    const auto& x = program[s];
    steps[s] = {x.op,  source(s, x.a, 0),           source(s, x.b, 1), source(s, x.c, 2), 0,
                false, static_cast<float>(x.factor)};
    writer[x.result] = s;
  }
  return kept;
}

template <bool Mixed>
void launch_chain(stream where, std::span<const element_step> program, std::size_t n,
                  std::span<const mixed_input> inputs, mixed_output out) {
  chain_kernel<Mixed> kernel{};
  kernel.temporaries = static_cast<unsigned>(encode_chain(program, inputs.size(), kernel.steps));
  kernel.step_count = static_cast<unsigned>(program.size());
  kernel.input_count = static_cast<unsigned>(inputs.size());
  kernel.all = {n, {{out.data, size_of(out.type)}}};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    kernel.inputs[i] = inputs[i].data;
    kernel.all.require({inputs[i].data, size_of(inputs[i].type)});
    if constexpr (Mixed)
      kernel.types[i] = inputs[i].type;
  }
  if constexpr (Mixed)
    kernel.out = {out.data, n, out.type};
  else
    kernel.out = {static_cast<float*>(out.data), n};
  // More shared memory per block would need an opt-in (cudaFuncSetAttribute).
  constexpr std::size_t most_shared = 48 << 10;
  const auto bytes_per_element = kernel.temporaries * block_threads * sizeof(float);
  if (bytes_per_element * kernel.chain_width > most_shared)
    kernel.all.one_by_one();
  kernel.width_of_space = kernel.all.has_packs() ? kernel.chain_width : 1;
  launch(where, "elementwise", {kernel.all.blocks(), bytes_per_element * kernel.width_of_space},
         kernel);
}

template <class In, class Out>
void launch_by_channel(stream where, channel_operation how, const channel_arguments& a, In x,
                       In operand, Out out) {
  channel_kernel<In, Out> kernel{};
  kernel.x = x;
  kernel.b = {a.b, a.channels};
  kernel.operand = operand;
  kernel.out = out;
  kernel.inner = {a.inner, a.n};
  kernel.channels = {a.channels, a.n};
  kernel.how = how;
  kernel.after = a.last.after;
  kernel.by_column = a.inner == 1;
  kernel.all = {a.n, {address_of(x), address_of(operand), address_of(out)}};
  if (kernel.by_column)
    kernel.all.require({a.b});
  if ((kernel.by_column ? a.channels : a.inner) % pack_width != 0)
    kernel.all.one_by_one();
  launch(where, "by_channel", {kernel.all.blocks()}, kernel);
}

} // namespace

void elementwise(stream where, std::span<const element_step> program, std::size_t n,
                 std::span<const mixed_input> inputs, std::size_t temporaries, mixed_output out) {
  check_chain(program, inputs.size(), temporaries);
  const bool mixed =
    is_narrow(out.type) || std::ranges::any_of(inputs, is_narrow, &mixed_input::type);
  if (mixed)
    launch_chain<true>(where, program, n, inputs, out);
  else
    launch_chain<false>(where, program, n, inputs, out);
}

void elementwise(stream where, std::span<const element_step> program, std::size_t n,
                 std::span<const float* const> inputs, std::size_t temporaries, float* out) {
  check_chain(program, inputs.size(), temporaries);
  std::array<mixed_input, most_chain_inputs> all{};
  std::ranges::transform(inputs, all.begin(), [](const float* x) { return mixed_input{x}; });
  elementwise(where, program, n, std::span<const mixed_input>{all}.first(inputs.size()),
              temporaries, mixed_output{out});
}

void add_in_order(stream where, std::size_t n, std::span<const float* const> x, float* out) {
  const auto count = static_cast<std::uint32_t>(x.size());
  std::vector<element_step> program;
  for (std::uint32_t i = 1; i < count; ++i)
    program.push_back({operation::add, i == 1 ? 0 : count, i, 0, count});
  elementwise(where, program, n, x, count > 2 ? 1 : 0, out);
}

void by_channel(stream where, channel_operation how, const channel_arguments& arguments) {
  const auto& a = arguments;
  const auto operand_type = a.last.operand != nullptr ? a.last.type : dtype::float32;
  if (is_narrow(a.x_type) || is_narrow(a.out_type) || is_narrow(operand_type))
    launch_by_channel(where, how, a, mixed_view{a.x, a.n, a.x_type},
                      mixed_view{a.last.operand, a.n, operand_type},
                      mixed_target{a.out, a.n, a.out_type});
  else
    launch_by_channel(where, how, a, view<const float>{static_cast<const float*>(a.x), a.n},
                      view<const float>{static_cast<const float*>(a.last.operand), a.n},
                      view<float>{static_cast<float*>(a.out), a.n});
}

void to_float(stream where, std::size_t n, const std::int32_t* x, float* out) {
  launch(where, "to_float", {blocks_for(n)}, to_float_kernel{{x, n}, {out, n}});
}

void to_double(stream where, const float* x, double* out) {
  launch(where, "to_double", {1}, to_double_kernel{{x, 1}, {out, 1}});
}

void fill_zero(stream where, std::size_t n, mixed_output out) {
  if (is_narrow(out.type)) // all bits of a 0 are 0
    launch(where, "fill_zero", {blocks_for(n)},
           zero_kernel<std::uint16_t>{{static_cast<std::uint16_t*>(out.data), n}});
  else
    launch(where, "fill_zero", {blocks_for(n)},
           zero_kernel<float>{{static_cast<float*>(out.data), n}});
}

void dropout(stream where, std::size_t n, mixed_input x, double rate, const std::uint64_t* key,
             mixed_output out) {
  with_views(
    out, n,
    [&](auto to, auto from) {
      const element_loop all(n, {address_of(from), address_of(to)});
      launch(where, "dropout", {all.blocks()},
             dropout_kernel{from, view<const std::uint64_t>{key, 1}, to, all,
                            static_cast<std::int32_t>(rate * 16777216.0),
                            static_cast<float>(1 / (1 - rate))});
    },
    read_elements{x, n});
}

} // namespace troupe::cuda
