#pragma once

#include <cstddef>
#include <utility>

namespace troupe {

/// Memory that another process on this host can map: an anonymous file (memfd_create) that cannot
/// shrink. The system frees it when no process maps it or holds its descriptor any longer.
class shared_memory {
public:
  shared_memory() noexcept = default;
  shared_memory(shared_memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)) {}
  shared_memory& operator=(shared_memory other) noexcept;
  ~shared_memory();

  /// New zeroed memory, fully allocated. Empty if the system has too little.
  static shared_memory create(std::size_t bytes) noexcept;

  /// Maps memory of another process for reading. Takes ownership of the descriptor. Empty if the
  /// file has fewer than `bytes` bytes or lacks pages, if others than its owner can write to it, or
  /// if it can shrink: reading a shrunk file would kill this process.
  static shared_memory open(int file, std::size_t bytes) noexcept;

  explicit operator bool() const noexcept { return data_ != nullptr; }
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// The descriptor to send to other processes; -1 if this memory was opened.
  int file() const noexcept { return file_; }

private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

} // namespace troupe
