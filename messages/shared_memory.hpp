#pragma once

#include <cstddef>
#include <utility>

namespace troupe {

/// Memory that another process on this host can map: an anonymous file (memfd_create), which nobody
/// can shrink. Freed when the last process has let go of it.
class shared_memory {
public:
  shared_memory() noexcept = default;
  shared_memory(shared_memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)) {}
  shared_memory& operator=(shared_memory other) noexcept;
  ~shared_memory();

  /// New memory, zeroed, with all its pages there. Empty if the system has none to give.
  static shared_memory create(std::size_t bytes) noexcept;

  /// Maps what another process has created, to be read only. Takes the descriptor. Empty if that is
  /// not a file of at least `bytes` that cannot shrink: reading it might then end this process.
  static shared_memory open(int file, std::size_t bytes) noexcept;

  explicit operator bool() const noexcept { return data_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// What another process needs to open it; -1 for memory that was opened.
  int file() const noexcept { return file_; }

private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

} // namespace troupe
