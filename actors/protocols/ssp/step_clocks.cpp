#include "actors/protocols/ssp/step_clocks.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void step_clocks::open(std::shared_ptr<const version_pool> versions) {
  versions_ = std::move(versions);
}

bool step_clocks::place(entry& who, const proto::Pull& x) {
  if (who.gone)
    return false;
  if (x.begins() && who.counts)
    return true; // A repetition: the step is already chosen.
  if (x.clock() < who.clock)
    return who.counts && x.clock() + ahead_ >= who.clock; // A repeated early pull is valid.
  who.clock = x.begins() ? std::max(x.clock(), find_slowest()) : x.clock();
  who.counts = true;
  if (x.begins())
    who.waits_at.reset();
  fastest_ = std::max(fastest_, who.clock);
  // Finds the slowest worker again. It may now be at an earlier step: shard 0 chose the step of
  // worker `who`, and on this shard all other workers may already be ahead of this step.
  slowest_ = find_slowest();
  return true;
}

read_gate::answer step_clocks::read(const proto::Pull& x) {
  const std::scoped_lock lock{mutex_};
  auto& who = workers_[x.worker()];
  if (!place(who, x))
    return {.clock = x.clock(), .weights = versions_->newest(), .slow = {}};
  const auto clock = x.begins() ? who.clock : x.clock();
  answer result{.clock = clock, .weights = {}, .slow = {}};
  if (clock <= slowest_ + readers_bound()) {
    if (who.waits_at && *who.waits_at <= clock)
      who.waits_at.reset();
    result.weights = version_for(clock);
    return result;
  }
  who.waits_at = std::min(clock, who.waits_at.value_or(clock));
  result.behind = clock - slowest_;
  for (auto& [worker, y] : workers_)
    if (y.counts && y.clock + readers_bound() < clock)
      result.slow.push_back(worker);
  return result;
}

version_pool::snapshot step_clocks::version_for(std::uint64_t clock) {
  if (bound_ > 0)
    return versions_->newest();
  return reached_.try_emplace(clock, versions_->newest()).first->second;
}

std::optional<std::string> step_clocks::refusal(const proto::Commit& x) const {
  const std::scoped_lock lock{mutex_};
  if (x.step() <= slowest_ + bound_)
    return std::nullopt;
  return "it is of step " + std::to_string(x.step()) + ", the slowest worker is at step "
    + std::to_string(slowest_) + ", and ssp.staleness is " + std::to_string(bound_);
}

void step_clocks::committed(const proto::Commit& x) {
  const std::scoped_lock lock{mutex_};
  auto& who = workers_[x.id().worker()];
  if (who.gone || x.step() < who.clock)
    return;
  who.clock = x.step() + 1;
  fastest_ = std::max(fastest_, who.clock);
  advance();
}

void step_clocks::paused(const proto::Commit& x) {
  const std::scoped_lock lock{mutex_};
  auto& who = workers_[x.id().worker()];
  if (who.gone || who.clock != x.step() + 1 || who.paused_at == who.clock)
    return;
  who.counts = false;
  who.paused_at = who.clock;
  advance();
}

void step_clocks::forget(std::uint32_t worker) {
  const std::scoped_lock lock{mutex_};
  workers_[worker] = {.gone = true};
  advance();
}

std::uint64_t step_clocks::find_slowest() const {
  std::optional<std::uint64_t> result;
  for (auto& [worker, x] : workers_)
    if (x.counts)
      result = std::min(result.value_or(x.clock), x.clock);
  return result.value_or(fastest_);
}

void step_clocks::advance() {
  const auto now = find_slowest();
  if (now == slowest_)
    return;
  slowest_ = now;
  if (bound_ == 0) {
    reached_.insert_or_assign(now, versions_->newest());
    std::erase_if(reached_, [&](auto& x) { return x.first + 1 < now; });
  }
  for (auto& [worker, x] : workers_)
    if (x.waits_at && *x.waits_at <= slowest_ + readers_bound()) {
      x.waits_at.reset();
      admitted_.push_back(worker);
    }
}

std::uint64_t step_clocks::slowest() const {
  const std::scoped_lock lock{mutex_};
  return slowest_;
}

std::vector<std::uint32_t> step_clocks::take_admitted() {
  const std::scoped_lock lock{mutex_};
  return std::exchange(admitted_, {});
}

} // namespace troupe
