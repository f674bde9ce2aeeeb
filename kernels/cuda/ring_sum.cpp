#include "kernels/cuda/ring_sum.hpp"

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/reductions.hpp"

#include <utility>

namespace troupe::cuda {

ring_sum::ring_sum(ring_seat seat, range where, const std::vector<norm_part>& parts)
  : seat_(std::move(seat)), memory_(seat_.ring->replicas[seat_.rank]), gpu_(memory_->updates.get()),
    where_(where), number_(memory_->sums.size()),
    segments_(split_evenly(where.size(), seat_.ring->replicas.size())), space_(*gpu_, sum_space),
    norm_(*gpu_, parts), checked_(gpu_->make_event()) {
  memory_->sums.push_back({{*gpu_, where.size()}, gpu_->make_event()});
}

std::size_t ring_sum::memory_bytes(std::size_t n, std::span<const norm_part> parts) noexcept {
  return n * sizeof(float) + sum_space * sizeof(double) + gradient_norm::bytes(parts);
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
  norm_.submit(where, data(), space_.data());
  norm_.fetch(where);
  checked_->record(where);
}

double ring_sum::squared_norm() {
  gpu_->enter();
  checked_->wait();
  return norm_.squared();
}

void ring_sum::clear_gradient() {
  gpu_->enter();
  const auto where = gpu_->main_stream();
  fill_zero(where, where_.size(), memory_->gradient + where_.begin);
  gpu_->synchronize(where);
}

} // namespace troupe::cuda
