#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/proto/collective.pb.h"

// The messages between the members of a collective: threads or processes that add up vectors
// together. The type IDs start 2200 above the framework's first custom ID. The IDs from 2000 to
// 2199 are for types.hpp.

CAF_BEGIN_TYPE_ID_BLOCK(troupe_collective, caf::first_custom_type_id + 2200)

CAF_ADD_TYPE_ID(troupe_collective, (troupe::proto::CollectivePiece))
CAF_ADD_TYPE_ID(troupe_collective, (troupe::proto::CollectiveQuestion))
CAF_ADD_TYPE_ID(troupe_collective, (troupe::proto::CollectiveStanding))
CAF_ADD_TYPE_ID(troupe_collective, (troupe::proto::CollectiveFailure))
CAF_ADD_TYPE_ID(troupe_collective, (troupe::proto::CollectiveLeave))

CAF_END_TYPE_ID_BLOCK(troupe_collective)

namespace troupe {

/// The interface that a member of a collective offers to the other members.
using collective_peer =
  caf::typed_actor<rpc<void, proto::CollectivePiece, payload>,
                   rpc<proto::CollectiveStanding, proto::CollectiveQuestion>,
                   rpc<void, proto::CollectiveFailure>, rpc<void, proto::CollectiveLeave>>;

} // namespace troupe
