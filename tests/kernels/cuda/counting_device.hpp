#pragma once

#include "tests/kernels/cuda/simulated_device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace troupe::test {

/// Counts of copies between devices and the host.
struct traffic {
  /// Bytes to the devices (in), and from the devices (out).
  std::size_t in = 0;
  std::size_t out = 0;
  /// Number of copies that bring an announced batch to a device while it computes another batch.
  std::size_t uploads = 0;
  /// Number of copies from pinned memory that another device object allocated.
  std::size_t direct = 0;
};

/// A device that counts its copies. Several devices use the same counts. Bytes are counted at once,
/// and uploads when the device is destroyed.
class counting_device final : public simulated_device {
public:
  counting_device(std::optional<std::uint64_t> order, std::shared_ptr<traffic> all)
    : simulated_device(order), all_(std::move(all)) {}
  ~counting_device() override { all_->uploads += uploads(); }

  void copy_in(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    all_->in += bytes;
    all_->direct += is_pinned(from, bytes) && !has_pinned(from, bytes) ? 1 : 0;
    simulated_device::copy_in(where, to, from, bytes);
  }
  void copy_out(cuda::stream where, void* to, const void* from, std::size_t bytes) override {
    all_->out += bytes;
    simulated_device::copy_out(where, to, from, bytes);
  }

private:
  std::shared_ptr<traffic> all_;
};

} // namespace troupe::test
