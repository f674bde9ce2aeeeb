#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/devices/device_replica.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace troupe::cuda {

/// A replica on the GPU that `open` opens. Its updaters and its executor have separate device
/// objects, because they belong to different threads. An event orders the streams of these objects.
class gpu_replica final : public device_replica {
public:
  /// @param seat the replica's place in a ring, if any; the constructor adds the replica to the
  /// ring
  explicit gpu_replica(std::function<std::unique_ptr<device>()> open, ring_seat seat = {});

  updater_maker updaters_from(std::size_t begin) override;
  void stage(std::span<const staged_update> all) override;
  std::unique_ptr<device_executor> make_executor(std::shared_ptr<const plan> what,
                                                 std::shared_ptr<const plan> on_cpu,
                                                 const gpu_options& how) override;

private:
  std::function<std::unique_ptr<device>()> open_;
  std::shared_ptr<replica_memory> memory_;
  ring_seat seat_;
};

} // namespace troupe::cuda
