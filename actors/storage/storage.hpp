#pragma once

#include "kernels/file_descriptor.hpp"

#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A file in a directory that is written as a whole (write_directory). Its contents are `head` and
/// then the parts of `rest`, which refer to the caller's memory.
struct named_contents {
  std::string name;
  std::vector<std::byte> head;
  std::vector<std::span<const std::byte>> rest;
};

/// Where a run writes its results: on a disk (disk_storage) or in memory (memory_storage). If a
/// function fails, it throws std::system_error with the path in the text.
class storage {
public:
  virtual ~storage();

  /// Creates the directory and checks that files can be written there.
  virtual void prepare(const std::filesystem::path& directory) = 0;

  /// Locks a directory, so that no other run on this host can use it, until unlock() or the end of
  /// this object. Fails if another run uses the directory.
  virtual void lock(const std::filesystem::path&) {}

  /// Releases the lock.
  virtual void unlock() {}

  /// Replaces a file atomically: readers see either the old or the new contents, even after a
  /// crash.
  virtual void replace(const std::filesystem::path& file, std::span<const std::byte> contents) = 0;

  /// Appends to a file. Creates the file if it is missing.
  virtual void append(const std::filesystem::path& file, std::span<const std::byte> contents) = 0;

  /// Appends a line.
  void append_line(const std::filesystem::path& file, std::string_view line);

  /// Returns the contents of a file.
  virtual std::vector<std::byte> read(const std::filesystem::path& file) = 0;

  /// Creates a directory with these files, or replaces the directory. Readers never see a part of
  /// the new directory, even after a crash. They see no directory, the complete old directory, or
  /// the complete new one.
  virtual void write_directory(const std::filesystem::path& directory,
                               std::span<const named_contents> files) = 0;

  /// Removes a directory of files. Readers see the complete directory or no directory, even after a
  /// crash.
  virtual void remove_directory(const std::filesystem::path& directory) = 0;

  /// The names of the directories in `parent`, in order. Remains of interrupted operations are not
  /// included. Empty if `parent` does not exist.
  virtual std::vector<std::string> directories(const std::filesystem::path& parent) = 0;

  /// Removes the remains of interrupted operations from a directory: unfinished files of processes
  /// that have ended, and what is left of directories whose names begin with `directories`. If that
  /// is empty, no directory is removed. Call it only while no other thread of this process writes
  /// there.
  virtual void tidy(const std::filesystem::path& parent, std::string_view directories) = 0;
};

/// Writes to the file system of this host.
class disk_storage : public storage {
public:
  void prepare(const std::filesystem::path& directory) override;
  void lock(const std::filesystem::path& directory) override;
  void unlock() override { lock_ = {}; }
  void replace(const std::filesystem::path& file, std::span<const std::byte> contents) override;
  void append(const std::filesystem::path& file, std::span<const std::byte> contents) override;
  std::vector<std::byte> read(const std::filesystem::path& file) override;
  void write_directory(const std::filesystem::path& directory,
                       std::span<const named_contents> files) override;
  void remove_directory(const std::filesystem::path& directory) override;
  std::vector<std::string> directories(const std::filesystem::path& parent) override;
  void tidy(const std::filesystem::path& parent, std::string_view directories) override;

protected:
  /// Called before each system call that changes the disk. Tests override it and throw, to simulate
  /// a failing disk.
  virtual void before_change(std::string_view operation, const std::filesystem::path& where);

private:
  class open_file;

  /// The locked directory. The lock is released when this descriptor is closed.
  file_descriptor lock_;

  void write_new(const std::filesystem::path& file, std::span<const std::byte> head,
                 std::span<const std::span<const std::byte>> rest = {});
  void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  void remove_all(const std::filesystem::path& what);
  void sync_directory(const std::filesystem::path& directory);
};

/// Files in memory, for simulations. Thread-safe.
class memory_storage : public storage {
public:
  void prepare(const std::filesystem::path& directory) override;
  void replace(const std::filesystem::path& file, std::span<const std::byte> contents) override;
  void append(const std::filesystem::path& file, std::span<const std::byte> contents) override;
  std::vector<std::byte> read(const std::filesystem::path& file) override;
  void write_directory(const std::filesystem::path& directory,
                       std::span<const named_contents> files) override;
  void remove_directory(const std::filesystem::path& directory) override;
  std::vector<std::string> directories(const std::filesystem::path& parent) override;
  void tidy(const std::filesystem::path& parent, std::string_view directories) override;

  /// All files, by name.
  std::map<std::filesystem::path, std::string> files() const;

  /// The contents of a file; empty if there is no such file.
  std::string contents(const std::filesystem::path& file) const;

private:
  void remove_files(const std::filesystem::path& directory);

  mutable std::mutex mutex_;
  std::map<std::filesystem::path, std::string> files_;
};

} // namespace troupe
