#include "actors/link/permissions.hpp"

#include "messages/collective.hpp"
#include "messages/pieces.hpp"
#include "messages/store.hpp"
#include "messages/types.hpp"

#include <array>
#include <map>
#include <typeindex>
#include <unordered_map>

namespace troupe {

namespace {

using namespace proto;

constexpr std::uint8_t bit(job_kind x) {
  return static_cast<std::uint8_t>(1 << static_cast<int>(x));
}

struct sender_set {
  const char* names;
  std::uint8_t jobs;
};

constexpr sender_set coordinator{"coordinator", 0};
constexpr sender_set workers{"worker", bit(job_kind::worker)};
constexpr sender_set shards{"ps", bit(job_kind::ps)};
constexpr sender_set evaluators{"evaluator", bit(job_kind::evaluator)};
constexpr sender_set trainers{"ps or worker", bit(job_kind::ps) | bit(job_kind::worker)};
constexpr sender_set tasks{"ps, worker or evaluator",
                           bit(job_kind::ps) | bit(job_kind::worker) | bit(job_kind::evaluator)};

bool is(const link_peer& peer, job_kind job, std::uint32_t index) {
  return peer.task == coordinator_task || peer.task == task_name{job, index};
}

/// True if the peer is the sender that the message names in its fields.
template <class T>
bool names_sender(const caf::message& content, const link_peer& peer) {
  const auto& x = content.get_as<T>(0);
  if constexpr (requires { x.id().sequence(); }) {
    return is(peer, job_kind::worker, x.id().worker()) && x.id().incarnation() == peer.incarnation;
  } else if constexpr (requires {
                         x.worker();
                         x.incarnation();
                       }) {
    return is(peer, job_kind::worker, x.worker()) && x.incarnation() == peer.incarnation;
  } else if constexpr (requires { x.has_worker(); }) {
    // A request for a snapshot of the weights names no worker. The coordinator sends it.
    return x.has_worker() ? is(peer, job_kind::worker, x.worker()) : peer.task == coordinator_task;
  } else if constexpr (requires { x.from(); }) {
    return is(peer, job_kind::worker, x.from());
  } else if constexpr (requires { x.shard(); }) {
    return is(peer, job_kind::ps, x.shard());
  } else {
    task_name task;
    if (!from_proto(x.task(), task) || !is(peer, task.job, task.index))
      return false;
    if constexpr (requires { x.incarnation(); })
      return x.incarnation() == peer.incarnation;
    return true;
  }
}

template <class T>
constexpr permission row(Service to, sender_set from) {
  return {to, &typeid(T), from.names, from.jobs, nullptr};
}

/// A row for messages whose fields name their sender.
template <class T>
constexpr permission named(Service to, sender_set from) {
  return {to, &typeid(T), from.names, from.jobs, names_sender<T>};
}

// The table of permissions: which kinds of task may send which message to which service. The
// coordinator's node may send all listed messages, because it can host other tasks, too. The
// directory can also restrict an actor to messages of one task. For example, a member of a ring
// takes segments only from its left neighbour.
constexpr std::array table{
  row<OpenView>(NODE, coordinator),
  row<Shutdown>(NODE, coordinator),

  named<Join>(COORDINATOR, tasks),
  named<LeaseRequest>(COORDINATOR, workers),
  named<LeaseDone>(COORDINATOR, workers),
  named<Heartbeat>(COORDINATOR, workers),
  named<Leave>(COORDINATOR, workers),
  named<Failure>(COORDINATOR, tasks),
  named<TaskStatus>(COORDINATOR, tasks),
  row<CheckpointPart>(COORDINATOR, trainers),
  row<Evaluated>(COORDINATOR, evaluators),

  named<Push>(SHARD, workers),
  named<PushPiece>(SHARD, workers),
  named<Commit>(SHARD, workers),
  named<Admit>(SHARD, workers),
  named<PartialNorm>(SHARD, shards),
  row<StepParts>(SHARD, shards),
  row<Damping>(SHARD, shards),
  row<Fence>(SHARD, coordinator),
  row<IdleWorkers>(SHARD, coordinator),
  row<ReportRequest>(SHARD, coordinator),
  row<Restore>(SHARD, coordinator),
  row<StoreOpen>(SHARD, workers),
  row<StoreRequest>(SHARD, workers),
  row<StoreClose>(SHARD, workers),

  named<Pull>(READER, workers),

  row<Lease>(WORKER, coordinator),

  named<Advanced>(SYNCHRONIZER, shards),
  named<NewWeights>(SYNCHRONIZER, shards),
  row<ReportRequest>(SYNCHRONIZER, coordinator),
  row<Restore>(SYNCHRONIZER, coordinator),
  // Used only by protocols that embedding programs define.
  row<Segment>(SYNCHRONIZER, workers),

  row<Segment>(RING_NODE, workers),
  named<CollectivePiece>(RING_NODE, workers),
  row<CollectiveQuestion>(RING_NODE, workers),
  row<CollectiveFailure>(RING_NODE, workers),
  named<CollectiveLeave>(RING_NODE, workers),

  row<Evaluate>(EVALUATOR, coordinator),
};

/// The rows of one message type, by service.
using rows_of_type = std::map<Service, const permission*>;

const std::unordered_map<std::type_index, rows_of_type>& by_type() {
  static const auto result = [] {
    std::unordered_map<std::type_index, rows_of_type> x;
    for (auto& row : table)
      x[*row.message].emplace(row.to, &row);
    return x;
  }();
  return result;
}

/// True for troupe's own message types. If such a type has no row in the table, it is part of a
/// handshake or an answer. No peer may then send it to a service.
bool is_ours(const std::type_info& type) {
  return std::string_view{type.name()}.find("6troupe5proto") != std::string_view::npos
    || type == typeid(payload);
}

} // namespace

bool speaks_for(const link_peer& peer, const link_peer& task) noexcept {
  return peer.incarnation == task.incarnation
    && (peer.task == task.task || peer.task == coordinator_task);
}

std::span<const permission> permissions() noexcept {
  return table;
}

std::string refusal(const link_peer& peer, const endpoint& to, const caf::message& content) {
  const auto* type = content.empty() ? nullptr : content.type(0).second;
  if (type == nullptr) // The framework's own messages, such as those that end an actor.
    return "a message of the actor framework, not of troupe";
  const auto rows = by_type().find(*type);
  if (rows == by_type().end()) {
    const bool theirs = !is_ours(*type) && to.service != NODE && to.service != COORDINATOR;
    return theirs ? "" : "a message that no task may send there";
  }
  const auto i = rows->second.find(to.service);
  if (i == rows->second.end())
    return "a message that no task may send there";
  const auto& x = *i->second;
  if (peer.task != coordinator_task && (x.jobs & bit(peer.task.job)) == 0)
    return std::string{"a message that only "} + x.senders + " may send there";
  if (x.as_itself != nullptr && !x.as_itself(content, peer))
    return "a message in the name of another task or of another start of the task";
  return "";
}

} // namespace troupe
