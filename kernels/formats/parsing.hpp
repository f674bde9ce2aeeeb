#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Throws an `input_error` about the input `name`, usually a file.
[[noreturn]] void reject(std::string_view name, const std::string& what);

/// Computes the size of an array in bytes from the sizes of its axes and of an element. Returns
/// false if it does not fit into 64 bits.
bool byte_count(std::span<const std::uint64_t> shape, std::uint64_t element, std::uint64_t& out);

} // namespace troupe
