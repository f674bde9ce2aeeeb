#pragma once

#include "kernels/cuda/element.hpp"
#include "kernels/cuda/mixed.hpp"
#include "kernels/cuda/stream.hpp"
#include "kernels/plan/instruction.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::cuda {

// A launcher is a function that launches kernels. The launchers of this folder get pointers to
// device memory. A launcher returns before its kernels end. It throws device_error if a kernel
// cannot be launched.

/// Limits of a chain: a sequence of element-wise operations (instruction::program).
inline constexpr std::size_t most_chain_steps = 64;
inline constexpr std::size_t most_chain_inputs = 128;
inline constexpr std::size_t most_chain_temporaries = 24;

/// Runs the chain `program` on n elements in one pass, in float32. `out` may be an input. Throws
/// std::invalid_argument if the chain exceeds the limits above.
void elementwise(stream where, std::span<const element_step> program, std::size_t n,
                 std::span<const mixed_input> inputs, std::size_t temporaries, mixed_output out);
void elementwise(stream where, std::span<const element_step> program, std::size_t n,
                 std::span<const float* const> inputs, std::size_t temporaries, float* out);

/// out (n) = ((x[0] + x[1]) + x[2]) + ..., for at least two vectors x[i] (n), in one pass. `out`
/// may be an input. Throws std::invalid_argument if there are more than most_terms vectors.
inline constexpr std::size_t most_terms = most_chain_steps + 1;
void add_in_order(stream where, std::size_t n, std::span<const float* const> x, float* out);

/// The operation that by_channel() applies to an element and the value of its channel.
enum class channel_operation : std::uint8_t { add, multiply, broadcast };

/// The arguments of by_channel(). For n elements, it computes out[i] = after(x[i] + b[c]),
/// after(x[i] * b[c]) or after(b[c]). The channel c of element i is i / inner % channels. `after`
/// is the operation of `last`, if it has one. For rows with a bias per column, inner is 1. For
/// images with a bias per channel, inner is the number of pixels. `out` may be x. x may be null for
/// a broadcast.
struct channel_arguments {
  std::size_t n = 0;
  std::size_t channels = 1;
  std::size_t inner = 1;
  const void* x = nullptr;  // (n)
  const float* b = nullptr; // (channels)
  ending last;
  void* out = nullptr; // (n)
  /// The types of x and out: float32, bfloat16 or float16. The type of the operand of `last` is in
  /// `last`.
  dtype x_type = dtype::float32;
  dtype out_type = dtype::float32;
};
void by_channel(stream where, channel_operation how, const channel_arguments& arguments);

/// Converts n elements to float32.
void to_float(stream where, std::size_t n, const std::int32_t* x, float* out);

/// Converts one number to double: *out = *x.
void to_double(stream where, const float* x, double* out);

/// out[i] = 0, for n elements.
void fill_zero(stream where, std::size_t n, mixed_output out);

/// Applies dropout (kernels/graph/operations.hpp) to n elements. The mask depends on the key *key,
/// which is in device memory. `out` may be x.
void dropout(stream where, std::size_t n, mixed_input x, double rate, const std::uint64_t* key,
             mixed_output out);

} // namespace troupe::cuda
