#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/devices/pinned_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace troupe::cuda {

/// n elements of device memory, and n elements of pinned memory of the host. Copies between host
/// and device go through the pinned memory. Only send_feed may copy directly from other memory.
/// While an element is being copied, do not access it in pinned memory.
template <class T>
class staged_buffer {
public:
  staged_buffer() = default;
  staged_buffer(device& where, std::size_t n) : gpu_(&where), there_(where, n), here_(where, n) {}

  /// The elements in device memory.
  T* data() const noexcept { return there_.data(); }
  /// The elements in pinned memory.
  std::span<T> host() const noexcept { return {here_.data(), here_.size()}; }
  std::size_t size() const noexcept { return there_.size(); }
  std::size_t bytes() const noexcept { return there_.bytes(); }

  /// Copies elements [first, first + n) of host() to the device.
  void send(stream where, std::size_t first, std::size_t n) const {
    if (n > 0)
      gpu_->copy_in(where, there_.data() + first, here_.data() + first, n * sizeof(T));
  }
  /// Copies `values` to the beginning of host(), and from there to the device.
  void send(stream where, std::span<const T> values) const {
    std::ranges::copy(values, here_.data());
    send(where, 0, values.size());
  }
  /// Like send(where, values), with one exception: if the values take at least direct_feed_bytes
  /// and are already in pinned memory, they are copied from there to the device directly. Then the
  /// values must not change until the copy is done.
  void send_feed(stream where, std::span<const T> values) const {
    if (values.size_bytes() >= direct_feed_bytes
        && gpu_->is_pinned(values.data(), values.size_bytes()))
      gpu_->copy_in(where, there_.data(), values.data(), values.size_bytes());
    else
      send(where, values);
  }
  /// Copies elements [first, first + n) of the device to host().
  void fetch(stream where, std::size_t first, std::size_t n) const {
    if (n > 0)
      gpu_->copy_out(where, here_.data() + first, there_.data() + first, n * sizeof(T));
  }

private:
  device* gpu_ = nullptr;
  buffer<T> there_;
  buffer<T, memory_kind::pinned> here_;
};

} // namespace troupe::cuda
