#pragma once

#include "messages/buffer.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// What a vector to be added up consists of.
enum class element_kind : std::uint8_t { float32, float64 };

/// "float32".
const char* to_string(element_kind x) noexcept;

/// Bytes of an element.
constexpr std::size_t bytes_of(element_kind x) noexcept {
  return x == element_kind::float32 ? sizeof(float) : sizeof(double);
}

/// The bytes begin where such an element may lie: at a multiple of its size.
bool aligned(element_kind kind, const payload& x) noexcept;

/// Elements [begin, begin + count) of a vector, sharing its bytes.
inline payload slice_elements(const payload& x, element_kind kind, std::size_t begin,
                              std::size_t count) noexcept {
  return x.slice(begin * bytes_of(kind), count * bytes_of(kind));
}

/// out = a + b, element by element. Throws std::invalid_argument if their sizes differ, or if one
/// is not aligned. `out` may be a or b. Nothing else may use its bytes meanwhile.
void add(element_kind kind, const payload& a, const payload& b, payload& out);

} // namespace troupe
