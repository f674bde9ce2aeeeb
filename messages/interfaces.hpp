#pragma once

#include "messages/synchronizer.hpp"
#include "messages/types.hpp"

// The typed interfaces of all actors that other nodes reach. Every request is answered, with its
// result or a typed error; one-way messages (rpc<void, ...>) are never answered.

namespace troupe {

/// A process of the cluster. Starts the actors of its tasks when a view opens; quits with them at
/// the end.
using node_actor =
  caf::typed_actor<rpc<void, proto::Hello>, rpc<proto::ViewReady, proto::OpenView>,
                   rpc<proto::Ack, proto::Shutdown>, rpc<proto::Probed, proto::Probe>>;

/// Membership, leases, evaluation and life cycle of a job.
using coordinator_actor =
  caf::typed_actor<rpc<proto::Joined, proto::Join>, rpc<proto::Ack, proto::LeaseRequest>,
                   rpc<proto::Ack, proto::LeaseDone>, rpc<void, proto::Heartbeat>,
                   rpc<proto::Ack, proto::Leave>, rpc<void, proto::Failure>,
                   rpc<void, proto::TaskStatus>, rpc<proto::Ack, proto::Evaluated>,
                   rpc<proto::Ack, proto::CheckpointPart, payload>>;

/// Writer of a slice of the parameters. A gradient of zero samples is committed without a push. A
/// Commit with a payload also pushes it, as a Push without rows would.
using shard_actor =
  caf::typed_actor<rpc<proto::Pushed, proto::Push, payload>, rpc<proto::Pushed, proto::Commit>,
                   rpc<proto::Pushed, proto::Commit, payload>, rpc<proto::Pushed, proto::Admit>,
                   rpc<proto::Fenced, proto::Fence>, rpc<proto::Report, proto::ReportRequest>,
                   rpc<proto::Ack, proto::Restore, payload>, rpc<proto::Ack, proto::PartialNorm>,
                   rpc<proto::Ack, proto::StepParts>, rpc<proto::Ack, proto::IdleWorkers>,
                   rpc<void, proto::Damping>>;

/// Serves published versions of a slice. Readers do not wait in the writer's mailbox.
using reader_actor = caf::typed_actor<rpc<reply<proto::Weights, payload>, proto::Pull>>;

/// Leases data, drives the trainer, and talks to one synchronizer.
using worker_actor = caf::typed_actor<rpc<void, proto::Lease>, rpc<void, acquired>,
                                      rpc<void, committed>, rpc<void, broken>>;

/// One rank of a ring.
using ring_actor = caf::typed_actor<rpc<void, proto::Segment, payload>>;

/// Evaluates snapshots on a separate node. Repeating a request is safe.
using evaluation_actor = caf::typed_actor<rpc<proto::Ack, proto::Evaluate, payload>>;

} // namespace troupe
