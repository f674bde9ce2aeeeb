#include "kernels/cuda/elementwise.hpp"

#include "kernels/cpu/dropout_mask.hpp"
#include "kernels/cuda/divider.hpp"
#include "kernels/cuda/kernel.hpp"
#include "kernels/cuda/mixed_view.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace troupe::cuda {

namespace {

/// An element_step in less memory, because the arguments of a kernel are at most 4 KiB.
struct chain_step {
  operation op;
  std::uint8_t a, b, c, result;
  float factor;
};

/// Number of elements that a thread computes at once. A step is decoded once for all of them.
constexpr unsigned chain_width = 2;

/// Runs a chain (instruction::program). The chain is the same for all threads, so the threads of a
/// warp always take the same branch. Temporaries are in shared memory, (temporaries,
/// chain_width, block_threads), because registers cannot be indexed at run time.
template <bool Mixed>
struct chain_kernel {
  chain_step steps[most_chain_steps];
  const void* inputs[most_chain_inputs]; // (n) each
  void* out;                             // (n)
  std::size_t n;
  unsigned step_count;
  unsigned input_count;
  unsigned temporaries;
  /// The types of the inputs. Not used if Mixed is false: then all types are float32.
  dtype types[Mixed ? most_chain_inputs : 1];
  dtype out_type;

  TROUPE_DEVICE float input(unsigned number, std::size_t i) const {
    if constexpr (Mixed)
      return mixed_view{inputs[number], n, types[number]}.load(i);
    else
      return view<const float>{static_cast<const float*>(inputs[number]), n}.load(i);
  }
  TROUPE_DEVICE void store(std::size_t i, float y) const {
    if constexpr (Mixed)
      mixed_target{out, n, out_type}.store(i, y);
    else
      view<float>{static_cast<float*>(out), n}.store(i, y);
  }
  TROUPE_DEVICE float operand(const thread& t, const view<float>& space, unsigned number,
                              unsigned slot, std::size_t i) const {
    if (number < input_count)
      return input(number, i);
    return space.load(place(t, number, slot));
  }
  TROUPE_DEVICE std::size_t place(const thread& t, unsigned number, unsigned slot) const {
    return ((number - input_count) * chain_width + slot) * block_threads + t.index();
  }

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto space = t.shared<float>(std::size_t{temporaries} * chain_width * block_threads);
    for (auto begin = t.block() * chain_width * block_threads + t.index(); begin < n;
         begin += t.blocks() * chain_width * block_threads) {
      for (unsigned s = 0; s < step_count; ++s) {
        const auto& x = steps[s];
        for (unsigned slot = 0; slot < chain_width; ++slot) {
          const auto i = begin + slot * block_threads;
          if (i >= n)
            break;
          const auto y =
            apply(x.op, operand(t, space, x.a, slot, i), operand(t, space, x.b, slot, i),
                  operand(t, space, x.c, slot, i), x.factor);
          if (s + 1 == step_count)
            store(i, y);
          else
            space.store(place(t, x.result, slot), y);
        }
      }
    }
  }
};

template <class In, class Out>
struct channel_kernel {
  In x;
  view<const float> b;
  In operand;
  Out out;
  divider inner, channels;
  channel_operation how;
  operation after;

  TROUPE_DEVICE void operator()(const thread& t) const {
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const float own = b.load(channels(inner.quotient(i)).rest);
      float y = own;
      if (how == channel_operation::add)
        y = x.load(i) + own;
      else if (how == channel_operation::multiply)
        y = x.load(i) * own;
      if (after != operation::end)
        y = apply(after, y, operand.data != nullptr ? operand.load(i) : y, y, 1);
      out.store(i, y);
    }
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
  std::int32_t threshold;
  float factor;

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto own = key.load(0);
    for (auto i = t.first(); i < out.size; i += t.stride()) {
      const auto y = x.load(i) * factor;
      out.store(i, cpu::dropout_bits(i, own) >= threshold ? y : 0);
    }
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

template <bool Mixed>
void launch_chain(stream where, std::span<const element_step> program, std::size_t n,
                  std::span<const mixed_input> inputs, std::size_t temporaries, mixed_output out) {
  chain_kernel<Mixed> kernel{};
  for (std::size_t i = 0; i < program.size(); ++i) {
    const auto& x = program[i];
    const auto number = [](std::uint32_t y) { return static_cast<std::uint8_t>(y); };
    kernel.steps[i] = {x.op,        number(x.a),      number(x.b),
                       number(x.c), number(x.result), static_cast<float>(x.factor)};
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    kernel.inputs[i] = inputs[i].data;
    if constexpr (Mixed)
      kernel.types[i] = inputs[i].type;
  }
  kernel.out = out.data;
  kernel.out_type = out.type;
  kernel.n = n;
  kernel.step_count = static_cast<unsigned>(program.size());
  kernel.input_count = static_cast<unsigned>(inputs.size());
  kernel.temporaries = static_cast<unsigned>(temporaries);
  launch(where, "elementwise",
         {blocks_for(n, std::size_t{chain_width} * block_threads),
          temporaries * chain_width * block_threads * sizeof(float)},
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
  launch(where, "by_channel", {blocks_for(a.n)}, kernel);
}

} // namespace

void elementwise(stream where, std::span<const element_step> program, std::size_t n,
                 std::span<const mixed_input> inputs, std::size_t temporaries, mixed_output out) {
  check_chain(program, inputs.size(), temporaries);
  const bool mixed =
    is_narrow(out.type) || std::ranges::any_of(inputs, is_narrow, &mixed_input::type);
  if (mixed)
    launch_chain<true>(where, program, n, inputs, temporaries, out);
  else
    launch_chain<false>(where, program, n, inputs, temporaries, out);
}

void elementwise(stream where, std::span<const element_step> program, std::size_t n,
                 std::span<const float* const> inputs, std::size_t temporaries, float* out) {
  check_chain(program, inputs.size(), temporaries);
  std::array<mixed_input, most_chain_inputs> all{};
  std::ranges::transform(inputs, all.begin(), [](const float* x) { return mixed_input{x}; });
  elementwise(where, program, n, std::span<const mixed_input>{all}.first(inputs.size()),
              temporaries, mixed_output{out});
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
      launch(where, "dropout", {blocks_for(n)},
             dropout_kernel{from, view<const std::uint64_t>{key, 1}, to,
                            static_cast<std::int32_t>(rate * 16777216.0),
                            static_cast<float>(1 / (1 - rate))});
    },
    read_elements{x, n});
}

} // namespace troupe::cuda
