#pragma once

#include <utility>

#include <unistd.h>

namespace troupe {

/// Owns a file descriptor, and closes it in the destructor. Like a unique_ptr, it can be moved but
/// not copied.
class file_descriptor {
public:
  file_descriptor() noexcept = default;
  explicit file_descriptor(int value) noexcept : value_(value) {}
  file_descriptor(file_descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  file_descriptor& operator=(file_descriptor other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~file_descriptor() {
    if (value_ >= 0)
      ::close(value_);
  }

  explicit operator bool() const noexcept { return value_ >= 0; }
  int get() const noexcept { return value_; }
  int release() noexcept { return std::exchange(value_, -1); }

private:
  int value_ = -1;
};

} // namespace troupe
