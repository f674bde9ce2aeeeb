#pragma once

#include "kernels/formats/zip.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The arrays of a .npz file (numpy.savez, numpy.savez_compressed): a zip archive of .npy files.
/// Refers to the caller's bytes. One thread at a time may use it.
class npz_file {
public:
  /// @param name the name of the input in errors, usually its path.
  /// @throws input_error like zip_archive; also if no member is named *.npy.
  npz_file(std::span<const std::byte> bytes, std::string_view name);

  /// Names of the arrays, without ".npy".
  const std::vector<std::string>& names() const noexcept { return names_; }

  /// Unpacks the array with this name. The result is the bytes of a .npy file, for parse_npy.
  /// @throws input_error that names the file, if there is no array with this name (with the nearest
  /// name); or like zip_archive::read.
  std::vector<std::byte> read(std::string_view array, std::uint64_t max_bytes) const;

private:
  std::string name_;
  zip_archive archive_;
  std::vector<std::string> names_;
  std::vector<zip_member> members_; // in the order of names_
};

} // namespace troupe
