#include "kernels/formats/parsing.hpp"

#include "kernels/error.hpp"

#include <algorithm>

namespace troupe {

void reject(std::string_view name, const std::string& what) {
  throw input_error(std::string{name} + ": " + what);
}

bool byte_count(std::span<const std::uint64_t> shape, std::uint64_t element, std::uint64_t& out) {
  // If a size is 0, the array is empty, although the product of the other sizes may be too large.
  out = std::ranges::find(shape, 0u) != shape.end() ? 0 : element;
  if (out == 0)
    return true;
  return std::ranges::all_of(
    shape, [&](std::uint64_t size) { return !__builtin_mul_overflow(out, size, &out); });
}

} // namespace troupe
