#pragma once

namespace troupe::cuda {

/// A queue of work on a device. The work runs in the order of submission. This handle owns nothing:
/// pass it by value.
struct stream {
  /// cudaStream_t; null is the default stream.
  void* handle = nullptr;
};

} // namespace troupe::cuda
