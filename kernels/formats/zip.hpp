#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// An open archive of libzip.
struct zip;

namespace troupe {

/// A file within a zip archive.
struct zip_member {
  std::string name;
  /// The number of the file in the archive.
  std::uint64_t index = 0;
  /// Sizes in bytes, according to the archive. `size` is the unpacked size, and `packed_size` is
  /// the size in the archive.
  std::uint64_t size = 0;
  std::uint64_t packed_size = 0;
};

/// A zip archive in memory, read by libzip. Members may be stored or deflated, and have any size
/// (zip64). The archive must be in one volume, without encryption. It refers to the caller's bytes.
/// One thread at a time may use it.
///
/// Memory: at most a small multiple of the archive's directory, and some MiB.
class zip_archive {
public:
  /// @param name the name of the input in errors, usually its path.
  /// @throws input_error with `name`, if the bytes are not a zip archive or are truncated. Also for
  /// a member that is encrypted, has another compression method, or does not fit into the file; the
  /// text then names the member.
  zip_archive(std::span<const std::byte> bytes, std::string_view name);

  /// The files, in the order of the archive's directory.
  const std::vector<zip_member>& members() const noexcept { return members_; }

  /// Unpacks a member and checks it. The result grows while data is unpacked. Therefore, a wrong
  /// size in an archive does not cause a large allocation. The result has at most `max_bytes`
  /// bytes.
  /// @throws input_error with the names of the archive and the member, if the data is corrupt, if
  /// its size or checksum differs from the directory of the archive, or if there are more than
  /// `max_bytes`.
  std::vector<std::byte> read(const zip_member& member, std::uint64_t max_bytes) const;

private:
  struct closer {
    void operator()(::zip* x) const noexcept;
  };

  zip_member member_at(std::uint64_t index) const;

  std::string name_;
  std::size_t size_;
  std::unique_ptr<::zip, closer> archive_;
  std::vector<zip_member> members_;
};

} // namespace troupe
