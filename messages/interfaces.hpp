#pragma once

#include "messages/synchronizer.hpp"
#include "messages/types.hpp"

// The typed interfaces of all actors that other nodes reach. Every request is answered, with its
// result or a typed error; one-way messages (rpc<void, ...>) are never answered.

namespace troupe {

/// A process of the cluster. It starts the actors of its tasks when a view opens (the set of tasks
/// that train together), and quits with them at the end.
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

/// A parameter server: it updates a range of the parameters. A worker commits a gradient of zero
/// samples without a Push. A Commit with a payload also replaces a Push without rows.
using shard_actor =
  caf::typed_actor<rpc<proto::Pushed, proto::Push, payload>, rpc<proto::Pushed, proto::Commit>,
                   rpc<proto::Pushed, proto::Commit, payload>, rpc<proto::Pushed, proto::Admit>,
                   rpc<proto::Fenced, proto::Fence>, rpc<proto::Report, proto::ReportRequest>,
                   rpc<proto::Ack, proto::Restore, payload>, rpc<proto::Ack, proto::PartialNorm>,
                   rpc<proto::Ack, proto::StepParts>, rpc<proto::Ack, proto::IdleWorkers>,
                   rpc<void, proto::Damping>>;

/// Serves the published versions of a range of the parameters. It is separate from the actor that
/// updates them, so a pull does not wait for an update.
using reader_actor = caf::typed_actor<rpc<reply<proto::Weights, payload>, proto::Pull>>;

/// Requests leases, computes gradients, and exchanges them and weights through one synchronizer.
using worker_actor = caf::typed_actor<rpc<void, proto::Lease>, rpc<void, acquired>,
                                      rpc<void, committed>, rpc<void, broken>>;

/// One rank of a ring.
using ring_actor = caf::typed_actor<rpc<void, proto::Segment, payload>>;

/// Evaluates snapshots on a separate node. Repeating a request is safe.
using evaluation_actor = caf::typed_actor<rpc<proto::Ack, proto::Evaluate, payload>>;

} // namespace troupe
