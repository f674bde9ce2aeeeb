#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Type of the elements of a tensor. Parameters and their gradients are float32 (float64 in
/// reference tests); labels and indices are int32. `sparse` is for placeholders only: rows of
/// floating-point numbers that are mostly zero, as compressed rows.
enum class dtype : std::uint8_t { float32, float64, int32, sparse };

/// Bytes of one element.
constexpr std::size_t size_of(dtype type) noexcept {
  return type == dtype::float64 ? 8 : 4;
}

/// "float32", "float64", "int32", "sparse".
constexpr std::string_view to_string(dtype type) noexcept {
  switch (type) {
  case dtype::float32:
    return "float32";
  case dtype::float64:
    return "float64";
  case dtype::int32:
    return "int32";
  case dtype::sparse:
    return "sparse";
  }
  return "invalid";
}

} // namespace troupe
