#pragma once

#include "kernels/cuda/device.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace troupe::cuda {

/// Memory that the updaters and the executor of a device_replica share. It needs no lock:
/// device_replica requires an order of calls, and this order separates all accesses.
struct replica_memory {
  /// The newest weights of one updater, which holds parameters [begin, begin + size).
  struct part {
    std::size_t begin = 0;
    std::size_t size = 0;
    const float* weights = nullptr;
  };

  /// The gradients of a range of parameters, added up over all replicas of a ring. Other ranks read
  /// this sum.
  struct sum {
    buffer<float> values;
    /// Recorded after this rank has added up its segment.
    std::unique_ptr<event> added;
  };

  explicit replica_memory(std::shared_ptr<device> where)
    : updates(std::move(where)), updated(updates->make_event()) {}
  replica_memory(const replica_memory&) = delete;
  replica_memory& operator=(const replica_memory&) = delete;
  /// Destroys the executor first, because its work reads the weights.
  ~replica_memory();

  /// The device object of the updaters.
  std::shared_ptr<device> updates;
  std::vector<part> parts;
  /// Recorded after each update.
  std::unique_ptr<event> updated;
  /// The weights of updaters that were destroyed. The executor may still read them.
  std::vector<buffer<float>> weights;
  /// Only in a ring: a sum for each updater, in the order in which the updaters were made.
  std::deque<sum> sums;
  /// `runs` is the executor with its device object. `gradient` is the gradient of the executor.
  /// Both are null until the executor is made.
  std::shared_ptr<void> runs;
  float* gradient = nullptr;
};

/// The memory that the updaters of a ring share. It needs no lock: before a rank accesses memory
/// that another rank has written, it gets a message from that rank (device_updater::add_up).
struct replica_ring {
  explicit replica_ring(std::size_t ranks) : replicas(ranks) {}

  /// One replica for each rank; null until the rank's replica is opened.
  std::vector<std::shared_ptr<replica_memory>> replicas;
};

/// The place of a replica in a ring. `ring` is null if the replica is in no ring.
struct ring_seat {
  std::shared_ptr<replica_ring> ring;
  std::size_t rank = 0;
};

} // namespace troupe::cuda
