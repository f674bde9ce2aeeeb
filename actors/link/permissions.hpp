#pragma once

#include "messages/names.hpp"

#include <caf/message.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <typeinfo>

namespace troupe {

/// The node at the other end of a link, according to its introduction.
struct link_peer {
  task_name task;
  std::uint64_t incarnation = 0;

  friend bool operator==(const link_peer&, const link_peer&) = default;
};

/// True if the node `peer` may send messages as `task`. The node must have introduced itself as
/// this task, or as the coordinator, because the coordinator's node may host other tasks. The two
/// incarnations must be equal, because all tasks of a node share one incarnation.
bool speaks_for(const link_peer& peer, const link_peer& task) noexcept;

/// A row of the table of permissions: messages of this type may go to this service (an actor of a
/// task).
struct permission {
  proto::Service to;
  const std::type_info* message;
  /// The kinds of tasks that may send the message, as a text for errors, such as "worker".
  const char* senders;
  /// The kinds of tasks that may send the message, as bits: 1 << job_kind.
  std::uint8_t jobs;
  /// Checks that a message names the peer as its sender. Null if messages of this type do not name
  /// their sender.
  bool (*as_itself)(const caf::message& content, const link_peer& peer);
};

/// All rows of the table of permissions. Messages of troupe without a row are refused. Messages of
/// a type that an embedding program defines need no row, because they belong to the program's own
/// protocol. They may go to any service except a node or the coordinator.
std::span<const permission> permissions() noexcept;

/// The reason why a peer may not send this message to this service; empty if the peer may send it.
std::string refusal(const link_peer& peer, const endpoint& to, const caf::message& content);

} // namespace troupe
