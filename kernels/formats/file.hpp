#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// The most that a reader accepts by default, plain or decompressed: 8 GiB.
inline constexpr std::uint64_t default_max_file_bytes = std::uint64_t{8} << 30;

/// The bytes of a file, as they are.
/// @throws input_error that names `path`, if the file is missing, unreadable, a directory, or
/// longer than `max_bytes`.
std::vector<std::byte> read_file(const std::filesystem::path& path,
                                 std::uint64_t max_bytes = default_max_file_bytes);

/// The bytes of a file, decompressed if its first bytes say gzip (the name does not matter).
/// @param max_bytes bound of what is returned; at most this much (and the compressed file) is ever
/// held. A compressed file is also refused if it becomes more than 256 MiB and more than 100 times
/// as long: it has almost no content.
/// @throws input_error naming `path`: as `read_file` and `gunzip`.
std::vector<std::byte> read_plain_or_gzip(const std::filesystem::path& path,
                                          std::uint64_t max_bytes = default_max_file_bytes);

/// Writes `bytes` to `path` so that a reader sees the old file or the whole new one: temporary file
/// in the same directory, fsync, rename. Creates no directories.
/// @throws input_error naming `path` and the system's reason (no such directory, no space, no
/// permission).
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// The bytes of a text.
inline std::span<const std::byte> as_byte_span(std::string_view text) noexcept {
  return std::as_bytes(std::span{text.data(), text.size()});
}

} // namespace troupe
