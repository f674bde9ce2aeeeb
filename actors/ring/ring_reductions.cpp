#include "actors/ring/ring_reductions.hpp"

#include <utility>

namespace troupe {

ring_reductions::ring_reductions(const ring_place& place, std::vector<std::size_t> sizes,
                                 const std::vector<std::size_t>& sums)
  : place_(place), sizes_(std::move(sizes)) {
  if (place_.on_gpus)
    sizes_.assign(2 * sizes_.size(), 0);
  if (place_.in_halves) {
    const auto buckets = sizes_;
    sizes_.insert(sizes_.end(), buckets.begin(), buckets.end());
  }
  left_out_ = static_cast<std::uint32_t>(sizes_.size());
  sizes_.push_back(place.ranks);
  sizes_.push_back(place.checked);
  sizes_.insert(sizes_.end(), sums.begin(), sums.end());
}

bool ring_reductions::exists(const reduction_id& id) const noexcept {
  if (id.attempt > 0)
    return id.attempt == 1 && id.bucket <= left_out_;
  const bool checks = id.bucket == left_out_ + 1;
  return id.bucket < sizes_.size() && id.bucket != left_out_ && (!checks || place_.checked > 0);
}

ring_collective& ring_reductions::collective(const reduction_id& id) {
  if (const auto found = open_.find(id); found != open_.end())
    return found->second;
  auto work = place_.ranks == 2 ? ring_work::exchange : ring_work::all_reduce;
  if (place_.in_halves && id.bucket < left_out_)
    work = id.bucket < left_out_ / 2 ? ring_work::reduce_scatter : ring_work::all_gather;
  auto place = place_;
  place.adds_later = place_.adds_later && id.bucket < left_out_;
  place.bucket = id.bucket;
  if (id.bucket >= left_out_)
    place.round = nullptr;
  if (id.bucket >= first_sum())
    place.elements = element_kind::float64;
  return open_.try_emplace(id, place, sizes_[id.bucket], work).first->second;
}

void ring_reductions::enter(std::uint64_t step) {
  if (step == step_)
    return;
  step_ = step;
  done_.clear();
  std::erase_if(open_, [step](auto& x) { return x.first.step < step; });
}

void ring_reductions::contribute(ring_contribution own, effects& result) {
  enter(own.id.step);
  std::vector<ring_piece> pieces;
  collective(own.id).contribute(std::move(own.values), own.samples, pieces);
  collect(own.id, std::move(pieces), result);
}

piece_fate ring_reductions::receive(const reduction_id& id, ring_piece piece, effects& result) {
  if (!exists(id))
    return piece_fate::no_such_bucket;
  if (id.step > step_ + 1)
    return piece_fate::not_due;
  std::vector<ring_piece> pieces;
  auto fate = piece_fate::repeated;
  if (id.step >= step_ && !done_.contains(id))
    fate = collective(id).receive(std::move(piece), pieces);
  repeated_ += fate == piece_fate::repeated ? 1 : 0;
  if (fate == piece_fate::taken)
    collect(id, std::move(pieces), result);
  return fate;
}

void ring_reductions::collect(const reduction_id& id, std::vector<ring_piece> pieces,
                              effects& result) {
  for (auto& x : pieces)
    result.send.push_back({id, std::move(x)});
  const auto i = open_.find(id);
  if (!i->second.complete())
    return;
  result.done = reduction{id, i->second.samples(), i->second.sum(), i->second.addend()};
  done_.insert(id);
  open_.erase(i);
}

} // namespace troupe
