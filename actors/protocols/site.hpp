#pragma once

#include "actors/link/permissions.hpp"
#include "actors/model/job_context.hpp"
#include "actors/replica/replica_account.hpp"
#include "actors/replica/replica_home.hpp"
#include "actors/spawner.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/view.hpp"
#include "actors/worker/worker.hpp"
#include "messages/interfaces.hpp"
#include "messages/loss_scale_state.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

// What a protocol gets from a node when it starts its actors there.

namespace troupe {

struct worker_site;

/// The functions that a node offers to protocols. They are called in the node's actor while a view
/// opens.
class protocol_host {
public:
  using on_reached = std::function<void(caf::strong_actor_ptr)>;

  /// Calls `then` with the actor of this name once it can be reached: at once, later, or never. The
  /// actor may be on this node or on another node.
  virtual void reach(const endpoint& name, on_reached then) = 0;

  /// Makes an actor reachable by a name.
  /// @param only if set, only the node of this task may send to the actor
  virtual void host(const endpoint& name, caf::strong_actor_ptr actor,
                    const std::optional<link_peer>& only) = 0;

  /// Ties this actor to the node: when the node ends, the actor ends. If the actor fails earlier,
  /// the run fails.
  virtual void start(const caf::strong_actor_ptr& actor) = 0;

  /// Starts the worker with this synchronizer. `sums`: see worker_site::give().
  virtual void give_parts(const worker_site& site, synchronizer_actor synchronizer,
                          ring_node_actor sums) = 0;

  /// Reports that the task is ready for the view. If `problem` is not empty, the task has failed.
  virtual void task_ready(const task_name& task, const std::string& problem) = 0;

  virtual caf::actor_system& home() = 0;
  virtual const troupe::spawner& threads() const = 0;

protected:
  ~protocol_host() = default;
};

/// A task whose actors are being started. Callbacks may keep a copy of this object, because the
/// node outlives the callbacks.
struct task_site {
  protocol_host* node = nullptr;
  std::shared_ptr<const job_context> context;
  troupe::view view;
  task_name task;
  /// A number that differs for each start of the node.
  std::uint64_t incarnation = 0;
  /// Deadlines of requests, from the job.
  patience requests;
  /// The board on which the task's actors show what they do and which tasks they wait for.
  std::shared_ptr<activity_board> board;
  coordinator_actor coordinator;

  /// Like protocol_host::reach(). The actor need not exist yet.
  template <class Handle>
  void reach(const endpoint& name, std::function<void(Handle)> then) const {
    node->reach(name, [then = std::move(then)](caf::strong_actor_ptr x) {
      then(caf::actor_cast<Handle>(std::move(x)));
    });
  }

  /// Spawns an actor that computes or blocks, on its own thread.
  template <class Actor, class... Args>
  auto spawn_heavy(Args&&... args) const {
    return started(node->threads().spawn_heavy<Actor>(node->home(), std::forward<Args>(args)...));
  }

  /// Spawns an actor that never computes for long: see spawner.
  template <class Actor, class... Args>
  auto spawn_brief(Args&&... args) const {
    return started(node->threads().spawn_brief<Actor>(node->home(), std::forward<Args>(args)...));
  }

  /// Spawns an actor that only passes on messages.
  template <class Actor, class... Args>
  auto spawn_light(Args&&... args) const {
    return started(node->threads().spawn_light<Actor>(node->home(), std::forward<Args>(args)...));
  }

  /// Makes the actor reachable as this service of the task.
  /// @param only if set, only this task may send to it
  template <class Handle>
  void host(proto::Service service, const Handle& actor,
            const std::optional<member>& only = {}) const {
    std::optional<link_peer> sender;
    if (only)
      sender = link_peer{only->task, only->incarnation};
    node->host({task, service}, caf::actor_cast<caf::strong_actor_ptr>(actor), sender);
  }

private:
  template <class Handle>
  Handle started(Handle actor) const {
    node->start(caf::actor_cast<caf::strong_actor_ptr>(actor));
    return actor;
  }
};

/// The workers of a view, in order of rank.
std::vector<counted_worker> workers_of(const view& members);

/// A worker whose synchronizer must be started.
///
/// If the workers hold the weights, the coordinator sends requests to two services of the workers:
/// proto::ReportRequest and proto::Restore to SYNCHRONIZER of each worker, and proto::Pull to
/// READER of worker 0. The protocol must host actors that answer them.
struct worker_site : task_site {
  worker_shell worker;
  /// If the worker continues from a checkpoint: its loss scale (see trainer).
  std::optional<loss_scale_state> loss_scale = {};
  /// Where the worker keeps its replica of the weights: on a GPU (residence_of) or in the host's
  /// memory.
  replica_home replica = {};

  /// Passes the synchronizer to the worker. Call this once, now or later.
  /// @param sums the actor of this worker's rank in a ring that computes sums over the batches of
  /// all workers. Null if no layer of the model needs such sums
  void give(const synchronizer_actor& synchronizer, const ring_node_actor& sums = {}) const {
    node->give_parts(*this, synchronizer, sums);
  }

  /// This worker's rank in the view, from 0.
  std::size_t rank() const;

  /// The worker with the previous rank. For rank 0, the worker with the last rank.
  member left() const;
};

/// A task `ps`, whose parameter shard must be started. The shard offers the services SHARD and
/// READER.
struct shard_site : task_site {
  /// Makes updaters on the task's device. Empty if the shard updates on the CPU.
  updater_maker updaters = {};
  /// The task and its device, for errors: "ps/0 on GPU:1".
  std::string device = {};

  /// Reports that the shard can be used. Call this once, now or later.
  void ready() const { node->task_ready(task, ""); }
};

} // namespace troupe
