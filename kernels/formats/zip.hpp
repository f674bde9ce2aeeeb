#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A file within a zip archive: a view of the caller's bytes.
struct zip_member {
  std::string name;
  /// Whether `data` is deflated (RFC 1951); otherwise it is stored.
  bool deflated = false;
  /// Size and checksum (CRC-32) once it is unpacked, as the archive says.
  std::uint64_t size = 0;
  std::uint32_t checksum = 0;
  std::span<const std::byte> data;
};

/// The files in a zip archive, in the order of its central directory. Reads the archives of NumPy
/// (.npz) and common tools: stored and deflated members below 4 GiB, one volume, no encryption.
/// Memory: at most a small multiple of the central directory.
/// @param name what errors call the input, usually the path.
/// @throws input_error naming `name`, and the member: not a zip archive, truncated, another method,
/// encrypted, or lengths that lie outside the file.
std::vector<zip_member> parse_zip(std::span<const std::byte> bytes, std::string_view name);

/// The bytes of a member, unpacked and checked. The result grows as data arrives, so an archive
/// that lies about sizes costs nothing; at most `max_bytes` are produced.
/// @throws input_error naming `name` and the member: corrupt, another size or checksum than the
/// archive says, or more than `max_bytes`.
std::vector<std::byte> unzip(const zip_member& member, std::uint64_t max_bytes,
                             std::string_view name);

} // namespace troupe
