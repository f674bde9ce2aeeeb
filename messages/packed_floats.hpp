#pragma once

#include "messages/buffer.hpp"

#include <cstddef>
#include <optional>
#include <span>

namespace troupe {

// Values that were rounded to bfloat16 are float32 numbers whose lower 16 bits are 0. Links between
// hosts send payloads of such values *packed*: without these bits. Packing loses nothing, whatever
// the values are: a block of 64 values keeps its lower bits if one of them is not 0. The packed
// bytes of n values are:
//
//   ceil(n / 64) bits, in whole bytes   bit b: block b keeps its lower bits
//   one byte                            if the bytes above are an odd number
//   2 n bytes                           the upper halves of all values
//   128 bytes for each such block       the lower halves of its values (the last block may have
//                                       fewer values)

/// Number of bytes of n packed values, if no block keeps its lower bits.
std::size_t packed_bytes(std::size_t n) noexcept;

/// Packs values. The result is empty if it would not be smaller than the values.
payload pack_floats(std::span<const float> values);

/// The n values that were packed. Nothing if the number of bytes does not fit.
std::optional<payload> unpack_floats(const payload& packed, std::size_t n);

} // namespace troupe
