#include "actors/coordinator/lease_book.hpp"

#include "actors/worker/lease_cursor.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Batches of a lease, at most.
constexpr std::uint64_t most_batches = 32;

} // namespace

lease_book::lease_book(const options& how)
  : how_(how), next_begin_(how.workers, how.records), epoch_committed_(how.records) {}

void lease_book::open_epoch(std::uint32_t epoch) {
  epoch_ = epoch;
  epoch_committed_ = 0;
  std::ranges::fill(next_begin_, 0);
  free_.assign(1, range{0, how_.records});
}

std::optional<range> lease_book::next_range(std::size_t rank) {
  const std::uint64_t batch = how_.batch;
  if (how_.in_step) {
    const auto begin = next_begin_[rank];
    if (begin >= how_.records)
      return std::nullopt;
    const auto end = std::min(begin + most_batches * batch * how_.workers, how_.records);
    next_begin_[rank] = end;
    return range{begin, end};
  }
  if (free_.empty())
    return std::nullopt;
  std::uint64_t remaining = 0;
  for (auto& r : free_)
    remaining += r.size();
  const auto share = remaining / (batch * how_.workers * 2);
  const auto size = batch * std::clamp<std::uint64_t>(share, 1, most_batches);
  auto& r = free_.front();
  const range result{r.begin, std::min<std::uint64_t>(r.begin + size, r.end)};
  r.begin = result.end;
  if (r.empty())
    free_.pop_front();
  return result;
}

std::optional<proto::Lease> lease_book::next(std::size_t rank) {
  const auto where = next_range(rank);
  if (!where)
    return std::nullopt;
  proto::Lease result;
  result.set_id(next_id_++);
  result.set_epoch(epoch_);
  result.set_begin(where->begin);
  result.set_end(where->end);
  result.set_batch(how_.batch);
  result.set_offset(how_.in_step ? rank * how_.batch : 0);
  result.set_stride(std::uint64_t{how_.batch} * (how_.in_step ? how_.workers : 1));
  leased_ += samples_of(result, batches_of(result));
  held_.emplace(result.id(), holding{rank, result});
  return result;
}

bool lease_book::settle(std::uint64_t lease, std::uint64_t batches, std::uint64_t samples) {
  auto i = held_.find(lease);
  if (i == held_.end())
    return false;
  const auto& x = i->second.lease;
  const auto all = batches_of(x);
  if (batches > all || samples != samples_of(x, batches) || (how_.in_step && batches < all))
    return false;
  committed_ += samples;
  epoch_committed_ += samples;
  if (batches < all) {
    const range rest{x.begin() + batches * x.stride(), x.end()};
    released_ += rest.size();
    free_.push_front(rest);
  }
  held_.erase(i);
  return true;
}

std::vector<proto::Lease> lease_book::held_by(std::size_t rank) const {
  std::vector<proto::Lease> result;
  for (auto& [id, x] : held_)
    if (x.rank == rank)
      result.push_back(x.lease);
  return result;
}

} // namespace troupe
