#pragma once

#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// Makes a node's first message to a new peer. It contains the node's version, its tasks, and its
/// port for channels (the faster, second connections), which is 0 if it has none. The message is
/// sent as one of the application identifiers in the handshake of the framework's protocol (BASP).
std::string identity_of(std::span<const task_name> tasks, std::uint16_t channel_port = 0);

/// Tests whether the node at `x.address` can be reached, and stores the results in `x`. Resolves
/// the address, connects to it and reads the node's first message. If this message names a port for
/// channels, connects to this second port, too. Does not disturb the node. Blocks for at most
/// `limit`, plus one second for the second port, plus the time of the system's resolver.
void probe(proto::Reach& x, std::chrono::milliseconds limit = std::chrono::seconds{3});

/// Probes many addresses at the same time.
void probe_all(google::protobuf::RepeatedPtrField<proto::Reach>& addresses);

} // namespace troupe
