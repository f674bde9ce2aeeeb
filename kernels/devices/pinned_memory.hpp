#pragma once

#include <cstddef>

namespace troupe {

/// A GPU copies a feed directly from pinned memory if the feed has at least this many bytes. For
/// fewer bytes, a copy by the processor takes less time than the test whether memory is pinned.
inline constexpr std::size_t direct_feed_bytes = std::size_t{64} << 10;

/// Allocates pinned (page-locked) memory of the host. A GPU can copy from it without the help of a
/// processor. Any thread may call the functions.
class pinned_memory {
public:
  pinned_memory() = default;
  pinned_memory(const pinned_memory&) = delete;
  pinned_memory& operator=(const pinned_memory&) = delete;
  virtual ~pinned_memory() = default;

  /// Throws device_error if there is too little memory.
  virtual void* allocate(std::size_t bytes) = 0;
  /// No copy from or to this memory may be running.
  virtual void release(void* memory) noexcept = 0;
};

} // namespace troupe
