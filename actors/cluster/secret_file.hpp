#pragma once

#include <filesystem>
#include <string>

namespace troupe {

struct cluster_secret {
  /// The file's contents without white space at the end.
  std::string text;
  /// A warning if the file's permissions are unsafe; otherwise empty.
  std::string warning;
};

/// Reads the secret of a cluster.
/// @throws input_error: the file cannot be read, has more than 4,096 bytes, or its text has fewer
/// than 16.
cluster_secret read_secret(const std::filesystem::path& path);

} // namespace troupe
