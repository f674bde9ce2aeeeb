#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Type of the elements of a tensor. Parameters and their gradients are float32 (float64 in
/// reference tests). Labels and indices are int32. Only placeholders can be `sparse`:
/// floating-point numbers that are mostly zero, stored as compressed rows. Only results of
/// operations can have the types of 16 bits (kernels/graph/precision.hpp).
enum class dtype : std::uint8_t { float32, float64, int32, sparse, bfloat16, float16 };

/// True for the types of 16 bits.
constexpr bool is_narrow(dtype type) noexcept {
  return type == dtype::bfloat16 || type == dtype::float16;
}

/// True for dense floating-point numbers.
constexpr bool is_float(dtype type) noexcept {
  return type == dtype::float32 || type == dtype::float64 || is_narrow(type);
}

/// Bytes of one element.
constexpr std::size_t size_of(dtype type) noexcept {
  return type == dtype::float64 ? 8 : is_narrow(type) ? 2 : 4;
}

/// The name of the enumerator, such as "float32".
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
  case dtype::bfloat16:
    return "bfloat16";
  case dtype::float16:
    return "float16";
  }
  return "invalid";
}

} // namespace troupe
