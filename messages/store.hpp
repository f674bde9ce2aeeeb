#pragma once

#include "messages/buffer.hpp"
#include "messages/caf_shim.hpp"
#include "messages/proto/store.pb.h"

// The messages between the clients and servers of a parameter store, and a server's interface for
// its clients. The type IDs start 2300 above the framework's first custom ID. The IDs from 2200 to
// 2299 are for collective.hpp.

CAF_BEGIN_TYPE_ID_BLOCK(troupe_store, caf::first_custom_type_id + 2300)

CAF_ADD_TYPE_ID(troupe_store, (troupe::proto::StoreOpen))
CAF_ADD_TYPE_ID(troupe_store, (troupe::proto::StoreOpened))
CAF_ADD_TYPE_ID(troupe_store, (troupe::proto::StoreRequest))
CAF_ADD_TYPE_ID(troupe_store, (troupe::proto::StoreAnswer))
CAF_ADD_TYPE_ID(troupe_store, (troupe::proto::StoreClose))

CAF_END_TYPE_ID_BLOCK(troupe_store)

namespace troupe {

/// The interface that a server of a parameter store offers to its clients.
using store_actor =
  caf::typed_actor<rpc<proto::StoreOpened, proto::StoreOpen>,
                   rpc<reply<proto::StoreAnswer, payload>, proto::StoreRequest, payload>,
                   rpc<void, proto::StoreClose>>;

} // namespace troupe
