#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/proto/pieces.pb.h"

// The messages for gradients and weights in pieces, between workers and parameter servers. The type
// IDs start 2400 above the first custom one. The IDs from 2300 to 2399 are for store.hpp.

CAF_BEGIN_TYPE_ID_BLOCK(troupe_pieces, caf::first_custom_type_id + 2400)

CAF_ADD_TYPE_ID(troupe_pieces, (troupe::proto::PushPiece))
CAF_ADD_TYPE_ID(troupe_pieces, (troupe::proto::NewWeights))

CAF_END_TYPE_ID_BLOCK(troupe_pieces)

namespace troupe {

/// The interface of a shard to a worker that pushes in pieces.
using piece_taker = caf::typed_actor<rpc<void, proto::PushPiece, payload>>;

/// The interface of a worker's synchronizer to a shard that sends weights in pieces.
using new_weights_taker = caf::typed_actor<rpc<void, proto::NewWeights, payload>>;

} // namespace troupe
