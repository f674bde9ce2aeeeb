#include "actors/parameter_server/parameter_shard.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

// If a worker is lost, the shards fence it off: from then on, they apply no further gradient of it.
// Each of its earlier gradients is decided once, with the same result on all shards.

namespace troupe {

caf::result<proto::Fenced> parameter_shard::on_fence(const proto::Fence& x) {
  proto::GradientId of;
  of.set_worker(x.worker());
  of.set_incarnation(x.incarnation());
  of.set_sequence(1);
  const auto& last_id = x.last().id();
  const bool own = last_id.sequence() == 0
    || (last_id.worker() == x.worker() && last_id.incarnation() == x.incarnation());
  if (auto refused = refusal(of, own ? "" : "it is fenced off with a gradient of another worker"))
    return std::move(*refused);
  spdlog::debug("ps/{}: worker/{} is fenced off", options_.index, x.worker());
  journal_.fence(x.worker(), x.incarnation());
  if (x.has_last()) {
    finish(x);
  } else if (policy_->withdraw(x.worker())) {
    last_taken_.erase({x.worker(), x.incarnation()});
    make_updates();
  }
  std::vector<proto::GradientId> unstaged;
  for (auto& c : open_)
    if (!c.staged && c.header.id().worker() == x.worker()
        && c.header.id().incarnation() == x.incarnation())
      unstaged.push_back(c.header.id());
  for (auto& id : unstaged)
    if (auto answer = decided(id))
      deliver(id, *answer);
  if (!decides_later(x))
    return fenced(x);
  fences_.emplace_back(x, make_response_promise<proto::Fenced>());
  return fences_.back().second;
}

bool parameter_shard::decides_later(const proto::Fence& x) const {
  return x.has_last() && std::ranges::any_of(policy_->undecided(), [&](auto& id) {
           return id.worker() == x.worker() && id.incarnation() == x.incarnation();
         });
}

void parameter_shard::answer_fences() {
  std::erase_if(fences_, [this](auto& x) {
    if (decides_later(x.first))
      return false;
    x.second.deliver(fenced(x.first));
    return true;
  });
}

proto::Fenced parameter_shard::fenced(const proto::Fence& x) {
  const incarnation_key key{x.worker(), x.incarnation()};
  proto::Fenced result;
  *result.mutable_decided() = journal_.decided(x.worker(), x.incarnation());
  if (const auto last = last_taken_.find(key); last != last_taken_.end())
    *result.mutable_last() = last->second;
  if (!x.has_last())
    return result;
  last_taken_.erase(key);
  // Not earlier: a gradient that waited for its update needs what the policy knows of the worker.
  policy_->forget(x.worker(), x.incarnation());
  report_admitted();
  // An admitted gradient that has not arrived by now will never arrive, so it is not counted any
  // more.
  auto last = last_admitted_.find(key);
  if (last != last_admitted_.end()) {
    if (last->second > result.decided().sequence())
      --admitted_;
    last_admitted_.erase(last);
  }
  return result;
}

// Commits the last gradient of a lost worker. The worker had committed it at another shard, and was
// lost before it could commit it at this shard.
void parameter_shard::finish(const proto::Fence& x) {
  if (x.last().id().sequence() > 0 && staged_.has(x.last().id())) {
    auto header = x.last();
    header.set_base_version(std::min(header.base_version(), versions_->version()));
    take(header);
  }
  staged_.drop(x.worker(), x.incarnation());
  policy_->settle(x.worker(), x.last().id().sequence());
  make_updates();
}

} // namespace troupe
