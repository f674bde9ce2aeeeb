#pragma once

#include <filesystem>
#include <string>

namespace troupe {

struct cluster_secret {
  /// The file's contents without white space at the end.
  std::string text;
  /// A warning if the file's permissions are unsafe. Empty if they are safe.
  std::string warning;
};

/// Reads the secret of a cluster.
/// @throws input_error if the file cannot be read or has more than 4,096 bytes, or if its text has
/// fewer than 16 bytes
cluster_secret read_secret(const std::filesystem::path& path);

} // namespace troupe
