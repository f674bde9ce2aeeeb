#pragma once

#include "kernels/cuda/device.hpp"

namespace troupe::test {

/// The device of the simulator. Its memory is host memory between guard bands, a stream runs
/// everything at once, and kernels/cpu/gemm.hpp computes products. Copies to the host and products
/// fail with a simulation_error if they read memory that was never written.
class simulated_device : public cuda::device {
public:
  std::string name() const override { return "simulated"; }
  cuda::stream main_stream() const override { return {}; }
  void enter() override {}
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  void copy_in(cuda::stream where, void* to, const void* from, std::size_t bytes) override;
  void copy_out(cuda::stream where, void* to, const void* from, std::size_t bytes) override;
  void synchronize(cuda::stream) override {}
  void multiply(cuda::stream where, const cuda::product& x) override;
  void begin_recording(cuda::stream where) override;
  std::unique_ptr<cuda::recording> end_recording(cuda::stream where) override;

  /// Allocations so far.
  std::size_t allocations() const noexcept { return allocations_; }
  /// The bytes of all allocations so far.
  std::size_t allocated_bytes() const noexcept { return allocated_bytes_; }
  /// Recordings so far.
  std::size_t recordings() const noexcept { return recordings_; }

private:
  std::size_t allocations_ = 0;
  std::size_t allocated_bytes_ = 0;
  std::size_t recordings_ = 0;
};

} // namespace troupe::test
