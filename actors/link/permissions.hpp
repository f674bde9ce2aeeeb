#pragma once

#include "messages/names.hpp"

#include <caf/message.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <typeinfo>

namespace troupe {

/// The node at the other end of a link, as it has introduced itself.
struct link_peer {
  task_name task;
  std::uint64_t incarnation = 0;

  friend bool operator==(const link_peer&, const link_peer&) = default;
};

/// Whether `peer` is the node of this task: the task's own node, or the coordinator's node, which
/// may host other tasks. All tasks of a node have its incarnation.
bool speaks_for(const link_peer& peer, const link_peer& task) noexcept;

/// A row of the table of permissions: messages of this type may go to this service of a task.
struct permission {
  proto::Service to;
  const std::type_info* message;
  /// Names the jobs whose tasks may send it, for errors: "coordinator", "worker".
  const char* senders;
  /// Bits: 1 << job_kind.
  std::uint8_t jobs;
  /// Whether the message names its sender correctly. Null if it does not name its sender.
  bool (*as_itself)(const caf::message& content, const link_peer& peer);
};

/// All rows. What they do not list is refused, except for the types of an embedding program: its
/// own protocol decides on them, between tasks that train.
std::span<const permission> permissions() noexcept;

/// Why a peer may not send this message to this service; empty if it may. One look-up in a hash
/// table.
std::string refusal(const link_peer& peer, const endpoint& to, const caf::message& content);

} // namespace troupe
