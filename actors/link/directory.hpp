#pragma once

#include "messages/names.hpp"

#include <caf/actor_control_block.hpp>

#include <map>
#include <mutex>

namespace troupe {

/// The actors of a node by name. Links look up the receivers of peers' messages here. Thread-safe;
/// a node and its links share it.
class directory {
public:
  void add(const endpoint& name, caf::strong_actor_ptr actor);
  void remove(const endpoint& name);

  /// Removes all actors, so that none is kept alive at the end of a run.
  void clear();

  /// Null if this node has no such actor.
  caf::strong_actor_ptr find(const endpoint& name) const;

private:
  mutable std::mutex mutex_;
  std::map<endpoint, caf::strong_actor_ptr> actors_;
};

} // namespace troupe
