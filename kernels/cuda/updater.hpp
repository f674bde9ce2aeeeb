#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/devices/device_updater.hpp"

#include <memory>
#include <vector>

namespace troupe::cuda {

/// Holds weights, the gradient of an update and the optimizer's state of a range in device memory.
/// Each update copies the gradient to the device and the new weights to the host. A moment that the
/// caller holds travels in both directions.
class updater final : public device_updater {
public:
  /// Allocates device memory; throws device_error if there is too little.
  updater(std::shared_ptr<device> where, const updater_sizes& sizes);

  /// Bytes of device memory that an updater of these sizes allocates.
  /// @param staged with reserve_stage()
  static std::size_t memory_bytes(const updater_sizes& sizes, bool staged);

  void apply(const range_update& x) override;
  void stage(const range_update& x) override;
  void publish() noexcept override;
  void reserve_stage() override;
  void forget_weights() noexcept override { weights_are_ = nullptr; }
  std::span<const float> state(std::size_t slot) override;
  void restore(std::size_t slot, std::span<const float> values) override;

private:
  void copy_in(const range_update& x);
  void run(const range_update& x, float* updated, float* state);
  void copy_out(const range_update& x, const float* updated);

  std::shared_ptr<device> gpu_;
  updater_sizes sizes_;
  buffer<float> weights_;
  buffer<float> gradient_;
  buffer<float> state_; // (slots, elements)
  buffer<float> moment_;
  buffer<float> staged_weights_;
  buffer<float> staged_state_; // (slots, elements)
  /// Work space of rules that need whole tensors.
  buffer<double> space_;
  /// The host's memory that holds the same values as `weights_` (`staged_weights_`); null if there
  /// is none.
  const float* weights_are_ = nullptr;
  const float* staged_are_ = nullptr;
  /// What state() returned.
  std::vector<float> read_;
};

} // namespace troupe::cuda
