#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/gradient_norm.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace troupe::cuda {

/// One rank's part in adding up the gradients of a range of n parameters over the R replicas of a
/// ring. See device_updater::add_up. Each rank adds up one segment of the range. For this, it reads
/// (R - 1) n / R elements from other ranks. Then it copies the sums of the other segments, which
/// are also (R - 1) n / R elements. Only the norm of the sum goes through the host. It also
/// shows whether the sum is finite.
///
/// All work of a rank is in the main stream of its replica's updaters. Each rank records an event
/// after it has added up its segment. Before another rank copies this segment, its stream waits for
/// this event. When squared_norm() has returned for all ranges, no rank reads this rank's gradient
/// any more, and this rank reads no memory of other ranks.
class ring_sum {
public:
  /// @param where the range, counted in the parameters of the whole replica
  /// @param parts see updater_sizes::norm_parts
  ring_sum(ring_seat seat, range where, const std::vector<norm_part>& parts);

  /// Bytes of device memory for a range of n elements, and bytes of pinned memory.
  static std::size_t memory_bytes(std::size_t n, std::span<const norm_part> parts) noexcept;
  static std::size_t pinned_bytes(std::span<const norm_part> parts) noexcept {
    return gradient_norm::bytes(parts);
  }

  void add_up();
  void gather();
  double squared_norm();
  void clear_gradient();

  /// The sum, n elements.
  const float* data() const noexcept { return own().values.data(); }

private:
  replica_memory::sum& sum_of(std::size_t rank) const {
    return seat_.ring->replicas[rank]->sums[number_];
  }
  replica_memory::sum& own() const { return memory_->sums[number_]; }
  std::size_t ranks() const noexcept { return segments_.size(); }

  ring_seat seat_;
  std::shared_ptr<replica_memory> memory_;
  device* gpu_;
  range where_;
  /// The position of this sum in replica_memory::sums.
  std::size_t number_;
  std::vector<range> segments_;
  /// Work space of the norm.
  buffer<double> space_;
  gradient_norm norm_;
  std::unique_ptr<event> checked_;
};

} // namespace troupe::cuda
