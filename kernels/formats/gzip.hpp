#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// True if `bytes` begin like a gzip member (RFC 1952: 1f 8b).
bool is_gzip(std::span<const std::byte> bytes) noexcept;

/// Decompresses one or several concatenated gzip members (RFC 1952).
///
/// The result grows while data is decompressed. Therefore, a wrong size in the file does not cause
/// a large allocation. The result has at most `max_bytes` bytes.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name`: truncated, corrupt, wrong checksum, bytes after the last
/// member, or more than `max_bytes` of output.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::uint64_t max_bytes,
                              std::string_view name);

/// Compresses to one gzip member. It has no timestamp, so the same input gives the same output with
/// the same version of zlib.
std::vector<std::byte> gzip(std::span<const std::byte> bytes);

} // namespace troupe
