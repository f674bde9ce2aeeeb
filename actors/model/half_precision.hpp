#pragma once

#include <cstdint>

namespace troupe {

/// A number of IEEE 754's binary16 (F16, FLOAT16).
float from_half(std::uint16_t bits);

/// The first half of a float (BF16, BFLOAT16).
float from_brain(std::uint16_t bits);

} // namespace troupe
