#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/proto/pieces.pb.h"

// The messages with which workers and parameter servers exchange gradients and weights in pieces,
// instead of one message per range. The type IDs start 2400 above the framework's first custom ID.
// The IDs from 2300 to 2399 are for store.hpp.

CAF_BEGIN_TYPE_ID_BLOCK(troupe_pieces, caf::first_custom_type_id + 2400)

CAF_ADD_TYPE_ID(troupe_pieces, (troupe::proto::PushPiece))
CAF_ADD_TYPE_ID(troupe_pieces, (troupe::proto::NewWeights))

CAF_END_TYPE_ID_BLOCK(troupe_pieces)

namespace troupe {

/// The interface that a shard (a parameter server) offers to a worker that sends its gradient in
/// pieces.
using piece_taker = caf::typed_actor<rpc<void, proto::PushPiece, payload>>;

/// The interface that a worker's synchronizer offers to a shard that sends weights in pieces.
using new_weights_taker = caf::typed_actor<rpc<void, proto::NewWeights, payload>>;

} // namespace troupe
