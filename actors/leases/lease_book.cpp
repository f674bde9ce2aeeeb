#include "actors/leases/lease_book.hpp"

#include "actors/leases/lease_cursor.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

namespace {

/// The book keeps the leases of at least this many epochs, because checkpoints of earlier epochs
/// may still be in progress and need them. It keeps further epochs as long as all of them together
/// have at most this many leases: epochs may be so short that the parts of a checkpoint arrive many
/// epochs late.
constexpr std::size_t epochs_remembered = 3;
constexpr std::size_t leases_remembered = 4096;

/// Number of batches of a lease that count as trained: all batches up to `mark`, the last batch of
/// the lease's worker whose gradient was applied.
std::uint64_t batches_trained(const proto::Lease& lease, const lease_mark& mark,
                              std::optional<std::uint64_t> settled) {
  const auto most = settled.value_or(batches_of(lease));
  if (mark.lease == lease.id())
    return mark.batch < most ? mark.batch + 1 : most;
  return mark.lease > lease.id() ? most : 0;
}

/// The positions (in the epoch's permutation) of the first `batches` batches of a lease. In a
/// synchronous protocol, they include the batches of all ranks.
range positions(const proto::Lease& lease, std::uint64_t batches) {
  return {lease.begin(),
          std::min<std::uint64_t>(lease.begin() + batches * lease.stride(), lease.end())};
}

/// The parts of `whole` that are not in `parts`. Both lists are in ascending order, and their
/// ranges do not overlap.
std::vector<range> without(const std::vector<range>& whole, const std::vector<range>& parts) {
  std::vector<range> result;
  for (auto rest : whole) {
    for (auto& part : parts) {
      const auto common = intersect(rest, part);
      if (common.empty())
        continue;
      if (rest.begin < common.begin)
        result.push_back({rest.begin, common.begin});
      rest.begin = common.end;
    }
    if (!rest.empty())
      result.push_back(rest);
  }
  return result;
}

} // namespace

std::uint64_t lease_cut::samples() const noexcept {
  std::uint64_t result = 0;
  for (auto& r : remaining)
    result += r.size();
  return result;
}

lease_book::lease_book(const options& how)
  : how_(how), free_(how.in_step ? how.workers : 1), trained_by_(how.workers, 0.0) {}

void lease_book::open_epoch(std::uint32_t epoch) {
  resume_epoch({epoch, {range{0, how_.records}}});
}

void lease_book::resume_epoch(const lease_cut& from) {
  epoch_size_ = from.samples();
  epoch_committed_ = 0;
  given_to_.assign(how_.workers, 0);
  sizes_.clear();
  // A worker's speed may change, so samples of earlier epochs count less: halve their numbers.
  for (auto& x : trained_by_)
    x /= 2;
  for (auto& queue : free_)
    queue.assign(from.remaining.begin(), from.remaining.end());
  epochs_.push_back({from.epoch, from.remaining, {}});
  std::size_t leases = 0;
  for (auto& x : epochs_)
    leases += x.leases.size();
  while (epochs_.size() > epochs_remembered && (!how_.remember || leases > leases_remembered)) {
    leases -= epochs_.front().leases.size();
    epochs_.pop_front();
  }
}

// The size of a worker's next lease, in samples. The worker's share of the remaining samples is
// proportional to its speed so far. A worker holds two leases. Together they get half of its share,
// so each lease gets a quarter. If no speed is known yet, leases are four times smaller.
std::uint64_t lease_book::share_of(std::size_t rank) const {
  std::uint64_t remaining = 0;
  for (auto& r : free_.front())
    remaining += r.size();
  const auto all = std::accumulate(trained_by_.begin(), trained_by_.end(), 0.0);
  return all > 0
    ? static_cast<std::uint64_t>(static_cast<double>(remaining) * trained_by_.at(rank) / all / 4)
    : remaining / (16 * how_.workers);
}

bool lease_book::may_lease(std::size_t rank) const noexcept {
  return !stopping_ || (how_.in_step && given_to_[rank] < std::ranges::max(given_to_));
}

bool lease_book::stopped() const noexcept {
  return stopping_ && held_.empty()
    && (!how_.in_step || std::ranges::min(given_to_) == std::ranges::max(given_to_));
}

std::uint64_t lease_book::most_samples(std::size_t rank, std::uint64_t most) {
  if (!how_.in_step)
    return how_.batch * std::clamp<std::uint64_t>(share_of(rank) / how_.batch, 1, most);
  const auto number = given_to_[rank];
  if (number == sizes_.size())
    sizes_.push_back(most);
  return sizes_[number] * how_.batch * how_.workers;
}

std::optional<range> lease_book::next_range(std::size_t rank, std::uint64_t most) {
  auto& queue = how_.in_step ? free_.at(rank) : free_.front();
  if (queue.empty() || !may_lease(rank))
    return std::nullopt;
  const auto size = most_samples(rank, most);
  auto& r = queue.front();
  const range result{r.begin, std::min<std::uint64_t>(r.begin + size, r.end)};
  r.begin = result.end;
  if (r.empty())
    queue.pop_front();
  return result;
}

std::optional<proto::Lease> lease_book::next(std::size_t rank, std::uint64_t most) {
  const auto where = next_range(rank, most);
  if (!where)
    return std::nullopt;
  proto::Lease result;
  result.set_id(next_id_++);
  result.set_epoch(epochs_.back().epoch);
  result.set_begin(where->begin);
  result.set_end(where->end);
  result.set_batch(how_.batch);
  result.set_offset(how_.in_step ? rank * how_.batch : 0);
  result.set_stride(std::uint64_t{how_.batch} * (how_.in_step ? how_.workers : 1));
  leased_ += samples_of(result, batches_of(result));
  ++given_to_[rank];
  held_.emplace(result.id(), holding{rank, result});
  if (how_.remember)
    epochs_.back().leases.emplace(result.id(), given{{rank, result}, std::nullopt});
  return result;
}

bool lease_book::settle(std::uint64_t lease, std::uint64_t batches, std::uint64_t samples,
                        bool drops_next) {
  auto i = held_.find(lease);
  if (i == held_.end())
    return false;
  const auto& x = i->second.lease;
  const auto all = batches_of(x);
  if (batches > all || samples != samples_of(x, batches) || (how_.in_step && batches < all)
      || (drops_next && batches == all))
    return false;
  if (how_.remember)
    epochs_.back().leases.at(lease).settled = batches;
  committed_ += samples;
  epoch_committed_ += samples;
  trained_by_.at(i->second.rank) += static_cast<double>(samples);
  if (drops_next) {
    const auto left_out = batch_of(x, batches).size();
    dropped_ += left_out;
    epoch_committed_ += left_out;
    ++batches;
  }
  if (batches < all) {
    const range rest{x.begin() + batches * x.stride(), x.end()};
    released_ += rest.size();
    free_.front().push_front(rest);
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

// The ranges of an epoch that count as trained. A worker's batches count up to its mark: its last
// batch whose gradient was applied. In a synchronous protocol, the range of a step counts only if
// the batches of all ranks in this step do.
std::vector<range> lease_book::trained(const epoch_record& x,
                                       std::span<const lease_mark> marks) const {
  struct step_lease {
    proto::Lease lease;
    std::size_t ranks = 0;
    std::uint64_t batches = 0;
  };
  std::map<std::uint64_t, step_lease> in_step;
  std::vector<range> result;
  for (auto& [id, y] : x.leases) {
    const auto batches = batches_trained(y.who.lease, marks[y.who.rank], y.settled);
    if (how_.in_step) {
      auto& step = in_step[y.who.lease.begin()];
      step.batches = step.ranks++ == 0 ? batches : std::min(step.batches, batches);
      step.lease = y.who.lease;
    } else if (batches > 0) {
      result.push_back(positions(y.who.lease, batches));
    }
  }
  for (auto& [begin, step] : in_step)
    if (step.ranks == how_.workers && step.batches > 0)
      result.push_back(positions(step.lease, step.batches));
  std::ranges::sort(result, {}, &range::begin);
  return result;
}

std::optional<lease_cut> lease_book::cut(std::span<const lease_mark> marks,
                                         std::uint64_t newest) const {
  for (auto& x : epochs_)
    if (x.leases.contains(newest))
      return lease_cut{x.epoch, without(x.ranges, trained(x, marks))};
  return std::nullopt;
}

} // namespace troupe
