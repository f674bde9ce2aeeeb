#pragma once

#include "messages/proto/names.pb.h"

#include <compare>
#include <cstdint>
#include <string>

namespace troupe {

/// The jobs of a cluster, in an order that decides which node opens a connection. Of two nodes, the
/// node with the lower task_name (job, then index) connects to the other node. So two nodes never
/// connect twice, and a cluster file needs only the addresses of tasks to which nodes connect. For
/// a node with several tasks, its highest task_name decides.
enum class job_kind : std::uint8_t { evaluator, worker, ps, coordinator };

/// A task of a cluster file (TensorFlow's ClusterSpec). Messages refer to tasks by name, never by
/// the handle of an actor.
struct task_name {
  job_kind job = job_kind::worker;
  std::uint32_t index = 0;

  friend auto operator<=>(const task_name&, const task_name&) = default;
};

inline constexpr task_name coordinator_task{job_kind::coordinator, 0};

/// The name as text, such as "worker/1".
std::string to_string(const task_name& x);

/// The job's name, as in a ClusterSpec.
const char* to_string(job_kind x) noexcept;

/// The address of an actor: its task, and the service that it offers there. The address stays the
/// same after a reconnection and in the next view.
struct endpoint {
  task_name task;
  proto::Service service = proto::SERVICE_UNSET;

  friend auto operator<=>(const endpoint&, const endpoint&) = default;
};

/// The address as text, such as "worker/1 (synchronizer)".
std::string to_string(const endpoint& x);

proto::TaskName to_proto(const task_name& x);
proto::Endpoint to_proto(const endpoint& x);

/// Reads a name that a peer sent. Returns false if its job is unknown.
bool from_proto(const proto::TaskName& x, task_name& result);
bool from_proto(const proto::Endpoint& x, endpoint& result);

/// Parses a job of a ClusterSpec: "ps", "worker", "coordinator" or "evaluator". Returns false for
/// any other text.
bool parse_job(const std::string& text, job_kind& result);

} // namespace troupe
