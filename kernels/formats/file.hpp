#pragma once

#include "kernels/file_descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The default limit of readers, for plain and for decompressed data: 8 GiB.
inline constexpr std::uint64_t default_max_file_bytes = std::uint64_t{8} << 30;

/// Reads the bytes of a file.
/// @throws input_error that names `path`, if the file is missing, unreadable, a directory, or
/// longer than `max_bytes`.
std::vector<std::byte> read_file(const std::filesystem::path& path,
                                 std::uint64_t max_bytes = default_max_file_bytes);

/// Reads a file, and decompresses it if its first bytes are those of gzip. The name of the file
/// does not matter.
/// @param max_bytes limit for the result. At most this many bytes, and the compressed file, are in
/// memory. There is a second limit for compressed files: the result is refused if it is larger than
/// 256 MiB and also more than 100 times as large as the file. Such a file has almost no content.
/// @throws input_error that names `path`, like `read_file` and `gunzip`.
std::vector<std::byte> read_plain_or_gzip(const std::filesystem::path& path,
                                          std::uint64_t max_bytes = default_max_file_bytes);

/// Bytes, and the object that keeps them in memory.
struct shared_bytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  /// True for a mapped file. Its pages are read when they are used, and take no memory of their
  /// own. If the file becomes shorter while it is mapped, SIGBUS kills the process.
  bool mapped = false;
};

/// Takes ownership of the bytes.
shared_bytes share(std::vector<std::byte> bytes);

/// Like read_plain_or_gzip, but maps a plain file into memory instead of reading it. A mapped file
/// may be longer than default_max_file_bytes. An empty file is not mapped.
/// @throws input_error like read_plain_or_gzip, or if the file cannot be mapped.
shared_bytes map_plain_or_gzip(const std::filesystem::path& path);

/// Tells the system that mapped bytes will be read in random order.
void expect_random_access(const shared_bytes& x) noexcept;

/// The files that match a path with wildcards in its last part (`*` and `?`, see matches_glob),
/// sorted by the bytes of their names. Without wildcards, this is the path itself. As in a shell,
/// `*` and `?` do not match a dot at the start of a name, so they find no hidden or unfinished
/// files. The result may contain directories, which cannot be read as files.
/// @throws input_error that names `path`, if no file matches or its directory cannot be read.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& path);

/// Writes all bytes to an open file.
/// @throws std::system_error with `path`
void write_all(const file_descriptor& file, std::span<const std::byte> bytes,
               const std::filesystem::path& path);

/// The beginning of the name of a file that is still being written. No other file has such a name.
inline constexpr std::string_view unfinished_prefix = ".tmp-";

/// True for the name of a temporary file of a file_writer that no process writes any more: its
/// process has ended, or is this process. Call it only while this process writes no such file.
bool is_abandoned_file(std::string_view name);

/// Writes a file in pieces. A reader sees either the old file or the complete new file, even after
/// a crash: the pieces go to a temporary file in the same directory, which is then synchronized
/// (fsync) and renamed. Creates no directories. Errors are std::system_error with the path in the
/// text.
class file_writer {
public:
  explicit file_writer(std::filesystem::path path);
  file_writer(const file_writer&) = delete;
  file_writer& operator=(const file_writer&) = delete;
  /// Removes the temporary file if finish() was not called or failed.
  ~file_writer();

  void write(std::span<const std::byte> bytes);
  /// Replaces the file by the new one. Call it once, after the last piece.
  void finish();

private:
  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_; // Empty after finish().
  file_descriptor descriptor_;
};

/// The bytes of a text.
inline std::span<const std::byte> as_byte_span(std::string_view text) noexcept {
  return std::as_bytes(std::span{text.data(), text.size()});
}

} // namespace troupe
