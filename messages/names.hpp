#pragma once

#include "messages/proto/names.pb.h"

#include <compare>
#include <cstdint>
#include <string>

namespace troupe {

/// The jobs of a cluster. They are in the order in which nodes dial: of two nodes, the one with the
/// lower task_name (job, then index) opens the connection. So two nodes never connect twice, and
/// only the addresses of dialled tasks must be known. For a node with several tasks, the highest
/// task_name counts.
enum class job_kind : std::uint8_t { evaluator, worker, ps, coordinator };

/// A task of a cluster file (TensorFlow's ClusterSpec). Messages refer to tasks by name, never by
/// the handle of an actor.
struct task_name {
  job_kind job = job_kind::worker;
  std::uint32_t index = 0;

  friend auto operator<=>(const task_name&, const task_name&) = default;
};

inline constexpr task_name coordinator_task{job_kind::coordinator, 0};

/// As text: "worker/1".
std::string to_string(const task_name& x);

/// The job's name, as in a ClusterSpec.
const char* to_string(job_kind x) noexcept;

/// The address of an actor: its task, and its service there. It stays the same across reconnections
/// and views.
struct endpoint {
  task_name task;
  proto::Service service = proto::SERVICE_UNSET;

  friend auto operator<=>(const endpoint&, const endpoint&) = default;
};

/// As text: "worker/1 (synchronizer)".
std::string to_string(const endpoint& x);

proto::TaskName to_proto(const task_name& x);
proto::Endpoint to_proto(const endpoint& x);

/// Reads a name that a peer sent. False if its job is unknown.
bool from_proto(const proto::TaskName& x, task_name& result);
bool from_proto(const proto::Endpoint& x, endpoint& result);

/// Parses a job of a ClusterSpec ("ps", "worker", "coordinator", "evaluator"). False for any other
/// text.
bool parse_job(const std::string& text, job_kind& result);

} // namespace troupe
