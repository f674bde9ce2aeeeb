#include "kernels/cuda/ring_sum.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/reductions.hpp"

#include <cmath>
#include <utility>

namespace troupe::cuda {

namespace {

/// out (n) = ((x[0] + x[1]) + x[2]) + ..., in one pass.
void add_in_order(stream where, std::size_t n, const std::vector<const float*>& x, float* out) {
  const auto count = static_cast<std::uint32_t>(x.size());
  std::vector<element_step> program;
  for (std::uint32_t i = 1; i < count; ++i)
    program.push_back({operation::add, i == 1 ? 0 : count, i, 0, count});
  elementwise(where, program, n, x, count > 2 ? 1 : 0, out);
}

} // namespace

ring_sum::ring_sum(ring_seat seat, range where)
  : seat_(std::move(seat)), memory_(seat_.ring->replicas[seat_.rank]), gpu_(memory_->updates.get()),
    where_(where), number_(memory_->sums.size()),
    segments_(split_evenly(where.size(), seat_.ring->replicas.size())), space_(*gpu_, sum_space),
    squares_(*gpu_, 1), checked_(gpu_->make_event()) {
  memory_->sums.push_back({{*gpu_, where.size()}, gpu_->make_event()});
}

std::size_t ring_sum::memory_bytes(std::size_t n) noexcept {
  return n * sizeof(float) + (sum_space + 1) * sizeof(double);
}

void ring_sum::add_up() {
  gpu_->enter();
  const auto where = gpu_->main_stream();
  const auto segment = segments_[seat_.rank];
  std::vector<const float*> terms;
  for (std::size_t i = 0; i < ranks(); ++i) {
    const auto& from = *seat_.ring->replicas[(seat_.rank + i) % ranks()];
    terms.push_back(from.gradient + where_.begin + segment.begin);
  }
  if (!segment.empty())
    add_in_order(where, segment.size(), terms, own().values.data() + segment.begin);
  own().added->record(where);
}

void ring_sum::gather() {
  gpu_->enter();
  const auto where = gpu_->main_stream();
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    if (rank == seat_.rank)
      continue;
    const auto segment = segments_[rank];
    sum_of(rank).added->hold(where);
    if (!segment.empty())
      gpu_->copy_from(where, own().values.data() + segment.begin,
                      seat_.ring->replicas[rank]->updates->number(),
                      sum_of(rank).values.data() + segment.begin, segment.size() * sizeof(float));
  }
  sum_of_squares(where, where_.size(), data(), space_.data(), {squares_.data(), nullptr});
  squares_.fetch(where, 0, 1);
  checked_->record(where);
}

// A sum of squares in double is finite exactly if all elements are finite: the square of a finite
// float does not overflow in double, and neither does the sum of any number of such squares.
bool ring_sum::is_finite() {
  gpu_->enter();
  checked_->wait();
  return std::isfinite(squares_.host()[0]);
}

void ring_sum::clear_gradient() {
  gpu_->enter();
  const auto where = gpu_->main_stream();
  fill_zero(where, where_.size(), memory_->gradient + where_.begin);
  gpu_->synchronize(where);
}

} // namespace troupe::cuda
