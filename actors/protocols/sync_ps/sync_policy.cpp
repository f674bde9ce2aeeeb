#include "actors/protocols/sync_ps/sync_policy.hpp"

#include <algorithm>

namespace troupe {

sync_policy::sync_policy(range where, std::size_t shard, std::vector<std::uint32_t> workers,
                         const proto::SyncPs& how, bool whole_sums)
  : shard_(shard), workers_(std::move(workers)), how_(how), whole_sums_(whole_sums),
    sum_(workers_.size(), where.size()) {}

std::optional<std::string> sync_policy::refusal(const proto::Commit& x,
                                                std::uint64_t version) const {
  if (std::ranges::find(workers_, x.id().worker()) == workers_.end())
    return "it is not a worker of this view";
  const bool may_be_late = chooses() && shard_ == 0;
  if (x.step() != version && !(may_be_late && x.step() < version))
    return "it commits step " + std::to_string(x.step()) + ", but the shard is at step "
      + std::to_string(version);
  return std::nullopt;
}

std::optional<proto::Outcome> sync_policy::late(const proto::Commit& x,
                                                std::uint64_t version) const {
  if (!chooses() || shard_ != 0 || (x.step() == version && (!closed_ || here(x.id()))))
    return std::nullopt;
  return how_.late() == proto::SyncPs::REJECT ? proto::LATE_DROPPED : proto::LATE_REQUEUED;
}

bool sync_policy::here(const proto::GradientId& x) const {
  return std::ranges::any_of(parts_, [&](auto& part) {
    const auto& id = part.header.id();
    return id.worker() == x.worker() && id.incarnation() == x.incarnation()
      && id.sequence() == x.sequence();
  });
}

std::size_t sync_policy::rank_of(std::uint32_t worker) const {
  return static_cast<std::size_t>(std::ranges::find(workers_, worker) - workers_.begin());
}

bool sync_policy::take(contribution x) {
  const auto rank = rank_of(x.header.id().worker());
  const auto samples = x.header.quarantine() ? 0 : x.header.samples();
  if (!sum_.add(rank, samples, std::move(x.gradient)))
    return false;
  step_ = x.header.step();
  parts_.push_back({std::move(x.header), {}});
  close_if_enough();
  return true;
}

// Closes the step if it has enough gradients: later gradients of this step are then late. A closed
// step does not open again, because the other shards get the list of its gradients.
void sync_policy::close_if_enough() {
  if (!chooses() || shard_ != 0 || parts_.empty())
    return;
  const auto idle = [&](std::uint32_t worker) {
    return std::ranges::find(idle_, worker) != idle_.end();
  };
  const auto awaited = std::ranges::count_if(workers_, [&](auto worker) {
    return !idle(worker) && !lost_.contains(worker)
      && std::ranges::none_of(parts_, [&](auto& x) { return x.header.id().worker() == worker; });
  });
  closed_ = closed_ || awaited == 0 || parts_.size() + how_.backup_workers() >= workers_.size();
}

bool sync_policy::ready() const noexcept {
  if (!chooses())
    return !workers_.empty() && sum_.complete();
  if (shard_ == 0)
    return closed_;
  const auto chosen = chosen_.find(step_);
  // The right number of gradients is not enough: one of them may be of a lost worker, and shard 0
  // has taken that gradient out.
  return chosen != chosen_.end() && parts_.size() == chosen->second.size()
    && std::ranges::all_of(chosen->second, [&](auto& id) { return here(id); });
}

void sync_policy::choose(std::uint64_t step, std::vector<proto::GradientId> parts) {
  choose_present(parts);
  chosen_[step] = std::move(parts);
}

// Removes from the list the gradients of lost workers that have not arrived, because they will
// never arrive.
void sync_policy::choose_present(std::vector<proto::GradientId>& parts) const {
  std::erase_if(parts, [&](auto& id) { return lost_.contains(id.worker()) && !here(id); });
}

bool sync_policy::take_out(std::uint32_t worker, std::uint64_t sequence) {
  const auto count = std::erase_if(parts_, [&](auto& x) {
    return x.header.id().worker() == worker && x.header.id().sequence() > sequence;
  });
  if (count > 0)
    sum_.remove(rank_of(worker));
  return count > 0;
}

bool sync_policy::withdraw(std::uint32_t worker) {
  if (!chooses() || shard_ != 0)
    return false;
  lost_.insert(worker);
  const bool result = !closed_ && take_out(worker, 0);
  close_if_enough();
  return result;
}

void sync_policy::settle(std::uint32_t worker, std::uint64_t sequence) {
  if (!chooses() || shard_ == 0)
    return;
  lost_.insert(worker);
  take_out(worker, sequence);
  for (auto& [step, parts] : chosen_)
    choose_present(parts);
}

void sync_policy::set_idle(std::vector<std::uint32_t> workers) {
  idle_ = std::move(workers);
  close_if_enough();
}

planned_update sync_policy::plan(std::span<const float>, std::uint64_t) {
  planned_update result;
  result.samples = sum_.samples();
  result.touched = sum_.touched();
  if (whole_sums_) {
    result.gradient = sum_.sum();
  } else {
    const auto [gradient, addend] = sum_.terms();
    result.gradient = gradient;
    result.terms.addend = addend;
  }
  return result;
}

void sync_policy::made(std::span<const float>, std::span<const float>, const proto::Pushed&) {
  sum_.clear();
  parts_.clear();
  closed_ = false;
  chosen_.erase(chosen_.begin(), chosen_.upper_bound(step_++));
}

} // namespace troupe
