#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/replica_memory.hpp"
#include "kernels/cuda/staged_buffer.hpp"
#include "kernels/range.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::cuda {

/// The part of one rank in the sum of the gradients of a range of n parameters over the R replicas
/// of a ring. See device_updater::add_up. Each rank reads (R - 1) n / R elements of other ranks to
/// add up its segment, and copies as many sums. Nothing goes through the host, except a number that
/// shows whether the sum is finite.
///
/// All its work is in the main stream of the replica's updaters. Before it copies a segment, the
/// stream waits for the event that the segment's rank has recorded after its addition. When
/// is_finite() has returned for all ranges, no rank reads this rank's gradient any more, and this
/// rank reads nothing from others.
class ring_sum {
public:
  /// @param where the range, in parameters of the whole replica
  ring_sum(ring_seat seat, range where);

  /// Bytes of device memory for n elements, and pinned.
  static std::size_t memory_bytes(std::size_t n) noexcept;
  static std::size_t pinned_bytes() noexcept { return sizeof(double); }

  void add_up();
  void gather();
  bool is_finite();
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
  /// Its place among the sums of the replica.
  std::size_t number_;
  std::vector<range> segments_;
  /// Work space, and the sum of squares: not finite if an element is not.
  buffer<double> space_;
  staged_buffer<double> squares_;
  std::unique_ptr<event> checked_;
};

} // namespace troupe::cuda
