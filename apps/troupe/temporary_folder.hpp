#pragma once

#include "kernels/error.hpp"

#include <filesystem>
#include <string>
#include <system_error>

#include <unistd.h>

namespace troupe {

/// A folder that is removed with its owner.
class temporary_folder {
public:
  /// Throws input_error if it cannot be made.
  temporary_folder() {
    auto name = (std::filesystem::temp_directory_path() / "troupe-XXXXXX").string();
    if (!::mkdtemp(name.data()))
      throw input_error{"cannot make a temporary folder " + name
                        + ": set TMPDIR to one that is writable"};
    path_ = name;
  }
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }

private:
  std::filesystem::path path_;
};

} // namespace troupe
