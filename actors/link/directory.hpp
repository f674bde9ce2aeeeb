#pragma once

#include "messages/names.hpp"

#include <caf/actor_control_block.hpp>

#include <map>
#include <mutex>

namespace troupe {

/// The actors of one node by name: where links deliver what peers send. Thread-safe; shared by a
/// node and its links.
class directory {
public:
  void add(const endpoint& name, caf::strong_actor_ptr actor);
  void remove(const endpoint& name);

  /// Forgets all actors, so that none is kept alive at the end of a run.
  void clear();

  /// Null if no such actor lives here.
  caf::strong_actor_ptr find(const endpoint& name) const;

private:
  mutable std::mutex mutex_;
  std::map<endpoint, caf::strong_actor_ptr> actors_;
};

} // namespace troupe
