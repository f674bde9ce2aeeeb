#pragma once

#include "actors/link/permissions.hpp"
#include "messages/names.hpp"

#include <caf/actor_control_block.hpp>

#include <map>
#include <mutex>
#include <optional>

namespace troupe {

/// The actors of a node by name. A link looks up here which actor receives a message of its peer.
/// Thread-safe; a node and its links share it.
class directory {
public:
  /// @param only if set, only this task of another node may send to the actor
  void add(const endpoint& name, caf::strong_actor_ptr actor,
           const std::optional<link_peer>& only = {});
  void remove(const endpoint& name);

  /// Removes all actors, because at the end of a run, the directory must keep none alive.
  void clear();

  struct entry {
    /// Null if no such actor lives here.
    caf::strong_actor_ptr actor;
    std::optional<link_peer> only;
  };

  entry entry_of(const endpoint& name) const;

  /// Null if no such actor lives here.
  caf::strong_actor_ptr find(const endpoint& name) const { return entry_of(name).actor; }

private:
  mutable std::mutex mutex_;
  std::map<endpoint, entry> actors_;
};

} // namespace troupe
