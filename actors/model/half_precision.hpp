#pragma once

#include <cstdint>

namespace troupe {

/// The float with the value of an IEEE 754 binary16 (F16, FLOAT16).
float from_half(std::uint16_t bits);

/// The float whose upper 16 bits are `bits` (BF16, BFLOAT16).
float from_brain(std::uint16_t bits);

} // namespace troupe
