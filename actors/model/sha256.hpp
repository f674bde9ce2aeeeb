#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace troupe {

/// SHA-256 (FIPS 180-4).
std::array<std::byte, 32> sha256(std::span<const std::byte> bytes);

/// SHA-256 as 64 lower-case hexadecimal digits. It is here because kernels do not use OpenSSL.
std::string sha256_hex(std::span<const std::byte> bytes);

/// SHA-256 of the parameters as little-endian float32: `weights_sha256` in metrics.jsonl.
std::string sha256_hex(std::span<const float> values);

} // namespace troupe
