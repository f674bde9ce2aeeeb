#pragma once

#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// A node's first message to a new peer: its version, its tasks, and the port on which it listens
/// for second connections (0: none). It travels as one of the handshake's application identifiers.
std::string identity_of(std::span<const task_name> tasks, std::uint16_t channel_port = 0);

/// Resolves `x.address`, connects to it and reads the peer's first message. If the peer listens for
/// second connections, it also connects to that port. Stores the results in `x`. Does not disturb
/// the peer. Blocks at most for the limit, a second for the other port, and the time of the
/// system's resolver.
void probe(proto::Reach& x, std::chrono::milliseconds limit = std::chrono::seconds{3});

/// Probes many addresses at the same time.
void probe_all(google::protobuf::RepeatedPtrField<proto::Reach>& addresses);

} // namespace troupe
