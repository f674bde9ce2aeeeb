#include "actors/link/directory.hpp"

namespace troupe {

void directory::add(const endpoint& name, caf::strong_actor_ptr actor,
                    const std::optional<link_peer>& only) {
  std::lock_guard guard{mutex_};
  actors_[name] = {std::move(actor), only};
}

void directory::remove(const endpoint& name) {
  std::lock_guard guard{mutex_};
  actors_.erase(name);
}

void directory::clear() {
  std::map<endpoint, entry> dropped;
  std::lock_guard guard{mutex_};
  dropped.swap(actors_);
}

directory::entry directory::entry_of(const endpoint& name) const {
  std::lock_guard guard{mutex_};
  auto i = actors_.find(name);
  return i == actors_.end() ? entry{} : i->second;
}

} // namespace troupe
