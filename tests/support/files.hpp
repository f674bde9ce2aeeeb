#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <stdexcept>

namespace troupe::test {

/// Writes or overwrites a file.
inline void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file{path, std::ios::binary};
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush())
    throw std::runtime_error{"cannot write " + path.string()};
}

} // namespace troupe::test
