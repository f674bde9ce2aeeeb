#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/devices/device_replica.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace troupe::cuda {

/// A replica on the GPU that `open` opens. Updaters and executor have device objects of their own,
/// because they belong to different threads; an event orders their streams.
class gpu_replica final : public device_replica {
public:
  /// @param seat its rank of a ring, where it takes its place
  explicit gpu_replica(std::function<std::unique_ptr<device>()> open, ring_seat seat = {});

  updater_maker updaters_from(std::size_t begin) override;
  std::unique_ptr<device_executor> make_executor(std::shared_ptr<const plan> what,
                                                 std::shared_ptr<const plan> on_cpu,
                                                 const gpu_options& how) override;

private:
  std::function<std::unique_ptr<device>()> open_;
  std::shared_ptr<replica_memory> memory_;
  ring_seat seat_;
};

} // namespace troupe::cuda
