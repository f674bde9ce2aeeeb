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
/// Refers to the caller's bytes.
class npz_file {
public:
  /// @param name what errors call the input, usually the path.
  /// @throws input_error as parse_zip; and if no member is called *.npy.
  npz_file(std::span<const std::byte> bytes, std::string_view name);

  /// Names of the arrays, without ".npy".
  const std::vector<std::string>& names() const noexcept { return names_; }

  /// The array of that name as the bytes of a .npy file, for parse_npy.
  /// @throws input_error naming the file: no such array (with the nearest name), or as unzip.
  std::vector<std::byte> read(std::string_view array, std::uint64_t max_bytes) const;

private:
  std::string name_;
  std::vector<std::string> names_;
  std::vector<zip_member> members_; // as names_
};

} // namespace troupe
