#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/proto/wire.pb.h"

// The types of messages between nodes, except for messages of collectives (collective.hpp), of
// parameter stores (store.hpp) and of pieces (pieces.hpp). Their type IDs start at the first custom
// ID plus 2000. An embedding program can use the first 2000 custom IDs for its own types.

CAF_BEGIN_TYPE_ID_BLOCK(troupe, caf::first_custom_type_id + 2000)

CAF_ADD_TYPE_ID(troupe, (troupe::payload))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Hello))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Welcome))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Frame))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Chunk))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Credit))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Join))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Joined))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::OpenView))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::ViewReady))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Shutdown))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Ack))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Lease))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::LeaseRequest))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::LeaseDone))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Heartbeat))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Leave))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Failure))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Push))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Admit))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Pushed))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Advanced))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Pull))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Weights))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Fence))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Fenced))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::ReportRequest))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Report))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Segment))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::TaskStatus))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Evaluate))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Evaluated))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Probe))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Probed))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::CheckpointPart))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Restore))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::PartialNorm))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Commit))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::ChannelRefused))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::StepParts))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::IdleWorkers))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Damping))
CAF_ADD_TYPE_ID(troupe, (troupe::proto::Proof))

CAF_END_TYPE_ID_BLOCK(troupe)
