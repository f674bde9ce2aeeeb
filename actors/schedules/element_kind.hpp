#pragma once

#include "messages/buffer.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// The element type of a vector in an all-reduce.
enum class element_kind : std::uint8_t { float32, float64 };

/// The name of the type, such as "float32".
const char* to_string(element_kind x) noexcept;

constexpr std::size_t bytes_of(element_kind x) noexcept {
  return x == element_kind::float32 ? sizeof(float) : sizeof(double);
}

/// True if the address of the bytes is a multiple of the element size.
bool aligned(element_kind kind, const payload& x) noexcept;

/// Elements [begin, begin + count) of a vector. The result shares the bytes of `x`.
inline payload slice_elements(const payload& x, element_kind kind, std::size_t begin,
                              std::size_t count) noexcept {
  return x.slice(begin * bytes_of(kind), count * bytes_of(kind));
}

/// out = a + b, element by element. Throws std::invalid_argument if the sizes differ, or if a
/// vector is not aligned. `out` may be a or b. No other thread may use the bytes of `out` during
/// the call.
void add(element_kind kind, const payload& a, const payload& b, payload& out);

} // namespace troupe
