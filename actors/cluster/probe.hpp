#pragma once

#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// Makes a node's first message to a new peer. It contains the node's version, its tasks, and the
/// port on which it listens for second connections (0 if it does not). The message travels in the
/// handshake of the framework's protocol (BASP), as one of the application identifiers.
std::string identity_of(std::span<const task_name> tasks, std::uint16_t channel_port = 0);

/// Tests whether the node at `x.address` can be reached, and stores the results in `x`. Resolves
/// the address, connects to it and reads the peer's first message. If the peer listens for second
/// connections, connects to this second port, too. Does not disturb the peer. Blocks for at most
/// `limit`, plus one second for the second port, plus the time of the system's resolver.
void probe(proto::Reach& x, std::chrono::milliseconds limit = std::chrono::seconds{3});

/// Probes many addresses at the same time.
void probe_all(google::protobuf::RepeatedPtrField<proto::Reach>& addresses);

} // namespace troupe
