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
  /// True if `data` is deflated (RFC 1951); otherwise it is stored.
  bool deflated = false;
  /// Size and checksum (CRC-32) of the unpacked member, according to the archive.
  std::uint64_t size = 0;
  std::uint32_t checksum = 0;
  std::span<const std::byte> data;
};

/// The files in a zip archive, in the order of its central directory. Reads the archives of NumPy
/// (.npz) and common tools: stored and deflated members below 4 GiB, one volume, no encryption.
/// Memory: at most a small multiple of the central directory.
/// @param name the name of the input in errors, usually its path.
/// @throws input_error with `name` and the member: not a zip archive, truncated, another method,
/// encrypted, or lengths outside the file.
std::vector<zip_member> parse_zip(std::span<const std::byte> bytes, std::string_view name);

/// The unpacked and checked bytes of a member. The result grows as data arrives, so wrong sizes in
/// an archive do no harm. The result has at most `max_bytes`.
/// @throws input_error with `name` and the member: corrupt, a size or checksum that differs from
/// the archive's, or more than `max_bytes`.
std::vector<std::byte> unzip(const zip_member& member, std::uint64_t max_bytes,
                             std::string_view name);

} // namespace troupe
