#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Type of the elements of a tensor. Parameters and their gradients are float32 (float64 in
/// reference tests); labels and indices are int32.
enum class dtype : std::uint8_t { float32, float64, int32 };

/// Bytes of one element.
constexpr std::size_t size_of(dtype type) noexcept {
  return type == dtype::float64 ? 8 : 4;
}

/// "float32", "float64", "int32".
constexpr std::string_view to_string(dtype type) noexcept {
  switch (type) {
  case dtype::float32:
    return "float32";
  case dtype::float64:
    return "float64";
  case dtype::int32:
    return "int32";
  }
  return "invalid";
}

} // namespace troupe
