#pragma once

#include "messages/synchronizer.hpp"
#include "messages/types.hpp"

// The typed interfaces of all actors that other nodes reach. Every request is answered with its
// result or a typed error. One-way messages (rpc<void, ...>) are never answered.

namespace troupe {

/// A process of the cluster. When a view (the set of tasks that train together) opens, it starts
/// the actors of its own tasks. At the end of the run, it ends these actors and itself.
using node_actor =
  caf::typed_actor<rpc<void, proto::Hello>, rpc<proto::ViewReady, proto::OpenView>,
                   rpc<proto::Ack, proto::Shutdown>, rpc<proto::Probed, proto::Probe>>;

/// Controls a job: which tasks take part, which worker trains which samples (leases), when the
/// model is evaluated, and when the run ends.
using coordinator_actor =
  caf::typed_actor<rpc<proto::Joined, proto::Join>, rpc<proto::Ack, proto::LeaseRequest>,
                   rpc<proto::Ack, proto::LeaseDone>, rpc<void, proto::Heartbeat>,
                   rpc<proto::Ack, proto::Leave>, rpc<void, proto::Failure>,
                   rpc<void, proto::TaskStatus>, rpc<proto::Ack, proto::Evaluated>,
                   rpc<proto::Ack, proto::CheckpointPart, payload>>;

/// A parameter server: it updates a range of the parameters. A worker sends its gradient with a
/// Push. With a Commit, it then allows the server to use this gradient. A gradient of zero samples
/// needs no Push. A Commit can also replace the Push and have the gradient as its payload, if the
/// gradient has all elements of the range (Push.rows is empty).
using shard_actor =
  caf::typed_actor<rpc<proto::Pushed, proto::Push, payload>, rpc<proto::Pushed, proto::Commit>,
                   rpc<proto::Pushed, proto::Commit, payload>, rpc<proto::Pushed, proto::Admit>,
                   rpc<proto::Fenced, proto::Fence>, rpc<proto::Report, proto::ReportRequest>,
                   rpc<proto::Ack, proto::Restore, payload>, rpc<proto::Ack, proto::PartialNorm>,
                   rpc<proto::Ack, proto::StepParts>, rpc<proto::Ack, proto::IdleWorkers>,
                   rpc<void, proto::Damping>>;

/// Sends the published versions of a range of the parameters to tasks that pull them. A separate
/// actor updates the parameters, so a pull does not wait for an update.
using reader_actor = caf::typed_actor<rpc<reply<proto::Weights, payload>, proto::Pull>>;

/// Requests leases, computes gradients, and exchanges gradients and weights through its
/// synchronizer.
using worker_actor = caf::typed_actor<rpc<void, proto::Lease>, rpc<void, acquired>,
                                      rpc<void, committed>, rpc<void, broken>>;

/// One rank of a ring all-reduce. It receives chunks of vectors from the previous rank.
using ring_actor = caf::typed_actor<rpc<void, proto::Segment, payload>>;

/// Evaluates snapshots (copies of the weights) on a separate node. It is safe to repeat a request.
using evaluation_actor = caf::typed_actor<rpc<proto::Ack, proto::Evaluate, payload>>;

} // namespace troupe
