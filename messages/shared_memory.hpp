#pragma once

#include <cstddef>
#include <utility>

namespace troupe {

/// Memory that another process on this host can map: an anonymous file (memfd_create) that cannot
/// shrink. The system frees it once no process maps it, and no process holds its descriptor.
class shared_memory {
public:
  shared_memory() noexcept = default;
  shared_memory(shared_memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)) {}
  shared_memory& operator=(shared_memory other) noexcept;
  ~shared_memory();

  /// New memory, set to zero. The system allocates all of it now. The result is empty if the system
  /// has too little memory.
  static shared_memory create(std::size_t bytes) noexcept;

  /// Maps memory of another process for reading. Takes ownership of the descriptor. The result is
  /// empty if the file has fewer than `bytes` bytes, or if some of its pages are not allocated. It
  /// is also empty if the file can shrink, because reading behind its end would kill this process.
  /// It is also empty if other processes could still write to the file, but only on systems where a
  /// file can forbid this.
  static shared_memory open(int file, std::size_t bytes) noexcept;

  explicit operator bool() const noexcept { return data_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// The descriptor to send to other processes. It is -1 for memory from open().
  int file() const noexcept { return file_; }

private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

} // namespace troupe
