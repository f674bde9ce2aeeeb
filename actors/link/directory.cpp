#include "actors/link/directory.hpp"

namespace troupe {

void directory::add(const endpoint& name, caf::strong_actor_ptr actor) {
  std::lock_guard guard{mutex_};
  actors_[name] = std::move(actor);
}

void directory::remove(const endpoint& name) {
  std::lock_guard guard{mutex_};
  actors_.erase(name);
}

void directory::clear() {
  std::map<endpoint, caf::strong_actor_ptr> dropped;
  std::lock_guard guard{mutex_};
  dropped.swap(actors_);
}

caf::strong_actor_ptr directory::find(const endpoint& name) const {
  std::lock_guard guard{mutex_};
  auto i = actors_.find(name);
  return i == actors_.end() ? nullptr : i->second;
}

} // namespace troupe
