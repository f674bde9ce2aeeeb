#pragma once

#include "kernels/cuda/device.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace troupe::cuda {

/// Memory that the updaters and the executor of a device_replica share. It has no lock: the order
/// of calls that device_replica requires also orders all accesses.
struct replica_memory {
  /// The newest weights of an updater: parameters [begin, begin + size).
  struct part {
    std::size_t begin = 0;
    std::size_t size = 0;
    const float* weights = nullptr;
  };

  /// The sum of the gradients of a range over all replicas of a ring. Other ranks read it.
  struct sum {
    buffer<float> values;
    /// The end of the addition of this rank's segment.
    std::unique_ptr<event> added;
  };

  explicit replica_memory(std::shared_ptr<device> where)
    : updates(std::move(where)), updated(updates->make_event()) {}
  replica_memory(const replica_memory&) = delete;
  replica_memory& operator=(const replica_memory&) = delete;
  /// The executor's work reads weights, so it ends first.
  ~replica_memory();

  /// Of the updaters.
  std::shared_ptr<device> updates;
  std::vector<part> parts;
  /// The end of all updates so far.
  std::unique_ptr<event> updated;
  /// Buffers of updaters that are gone.
  std::vector<buffer<float>> weights;
  /// In a ring: of each updater, in order.
  std::deque<sum> sums;
  /// The executor and its device, once there is one, and its gradient.
  std::shared_ptr<void> runs;
  float* gradient = nullptr;
};

/// What the updaters of a ring share. A message from each rank comes before other ranks access what
/// it has written (device_updater::add_up), so no lock is needed.
struct replica_ring {
  explicit replica_ring(std::size_t ranks) : replicas(ranks) {}

  /// By rank; null until it is opened.
  std::vector<std::shared_ptr<replica_memory>> replicas;
};

/// A rank of a ring; null: of none.
struct ring_seat {
  std::shared_ptr<replica_ring> ring;
  std::size_t rank = 0;
};

} // namespace troupe::cuda
