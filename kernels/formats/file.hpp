#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// The limit of readers by default, for plain and for decompressed data: 8 GiB.
inline constexpr std::uint64_t default_max_file_bytes = std::uint64_t{8} << 30;

/// The bytes of a file, unchanged.
/// @throws input_error that names `path`, if the file is missing, unreadable, a directory, or
/// longer than `max_bytes`.
std::vector<std::byte> read_file(const std::filesystem::path& path,
                                 std::uint64_t max_bytes = default_max_file_bytes);

/// The bytes of a file, decompressed if its first bytes are those of gzip (the name does not
/// matter).
/// @param max_bytes limit for the result. No more than this and the compressed file is ever in
/// memory. A compressed file is also refused if the result has more than 256 MiB and more than 100
/// times the size: it has almost no content.
/// @throws input_error that names `path`, like `read_file` and `gunzip`.
std::vector<std::byte> read_plain_or_gzip(const std::filesystem::path& path,
                                          std::uint64_t max_bytes = default_max_file_bytes);

/// Writes `bytes` to `path` so that a reader sees either the old file or the complete new one:
/// temporary file in the same directory, fsync, rename. Creates no directories.
/// @throws input_error with `path` and the system's reason (no such directory, no space, no
/// permission).
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// The bytes of a text.
inline std::span<const std::byte> as_byte_span(std::string_view text) noexcept {
  return std::as_bytes(std::span{text.data(), text.size()});
}

} // namespace troupe
