#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace troupe {

// Numbers as text, for messages and canonical files.

/// The shortest decimal text that a reader converts back to the same number.
std::string number_text(float x);
std::string number_text(double x);

/// For example "(2, 3)". A negative extent stands for the batch: "(batch, 3)".
std::string shape_text(std::span<const std::int64_t> extents);
std::string shape_text(std::span<const std::uint64_t> extents);

} // namespace troupe
