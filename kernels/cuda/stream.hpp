#pragma once

namespace troupe::cuda {

/// Work on a device in the order in which it was submitted. A name, not an owner: pass it by value.
struct stream {
  /// cudaStream_t; null is the default stream.
  void* handle = nullptr;
};

} // namespace troupe::cuda
