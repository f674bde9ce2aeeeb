#include "actors/parameter_server/staged_gradients.hpp"

namespace troupe {

void staged_gradients::put(const proto::GradientId& id, shard_gradient gradient) {
  auto& x = entries_[{id.worker(), id.incarnation()}];
  if (id.sequence() >= x.sequence)
    x = {id.sequence(), true, std::move(gradient)};
}

bool staged_gradients::has(const proto::GradientId& id) const {
  const auto i = entries_.find({id.worker(), id.incarnation()});
  return i != entries_.end() && i->second.here && i->second.sequence == id.sequence();
}

shard_gradient staged_gradients::take(const proto::GradientId& id) {
  if (!has(id))
    return {};
  auto& x = entries_.at({id.worker(), id.incarnation()});
  x.here = false;
  return std::exchange(x.gradient, {});
}

void staged_gradients::drop(std::uint32_t worker, std::uint64_t incarnation) {
  entries_.erase({worker, incarnation});
}

} // namespace troupe
