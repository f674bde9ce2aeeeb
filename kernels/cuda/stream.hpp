#pragma once

namespace troupe::cuda {

/// A queue of work on a device, which runs in the order of submission. A handle that owns nothing:
/// pass it by value.
struct stream {
  /// cudaStream_t; null is the default stream.
  void* handle = nullptr;
};

} // namespace troupe::cuda
