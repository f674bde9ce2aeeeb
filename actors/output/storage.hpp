#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// Where a run writes its results. Errors are std::system_error with the path in their text.
class storage {
public:
  virtual ~storage();

  /// Makes the directory and makes sure that files can be written there.
  virtual void prepare(const std::filesystem::path& directory) = 0;

  /// Replaces a file as a whole: readers see the old contents or the new, also after a crash.
  virtual void replace(const std::filesystem::path& file, std::span<const std::byte> contents) = 0;

  /// Adds to the end of a file, which is made where it is missing.
  virtual void append(const std::filesystem::path& file, std::span<const std::byte> contents) = 0;

  /// Appends a line.
  void append_line(const std::filesystem::path& file, std::string_view line);
};

/// The file system.
class disk_storage : public storage {
public:
  void prepare(const std::filesystem::path& directory) override;
  void replace(const std::filesystem::path& file, std::span<const std::byte> contents) override;
  void append(const std::filesystem::path& file, std::span<const std::byte> contents) override;
};

/// Files in memory, for simulations. Thread-safe.
class memory_storage : public storage {
public:
  void prepare(const std::filesystem::path& directory) override;
  void replace(const std::filesystem::path& file, std::span<const std::byte> contents) override;
  void append(const std::filesystem::path& file, std::span<const std::byte> contents) override;

  /// All files, by name.
  std::map<std::filesystem::path, std::string> files() const;

  /// The contents of a file; empty where there is none.
  std::string contents(const std::filesystem::path& file) const;

private:
  mutable std::mutex mutex_;
  std::map<std::filesystem::path, std::string> files_;
};

} // namespace troupe
