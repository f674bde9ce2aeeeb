#pragma once

#include "messages/names.hpp"
#include "messages/proto/wire.pb.h"

#include <chrono>
#include <span>
#include <string>

namespace troupe {

/// A node's first message to a new peer: its version and tasks. It travels as one of the
/// handshake's application identifiers.
std::string identity_of(std::span<const task_name> tasks);

/// Resolves `x.address`, connects to it and reads the peer's first message. Stores the result in
/// `x`. Does not disturb the peer. Blocks at most for the limit plus the time of the system's
/// resolver.
void probe(proto::Reach& x, std::chrono::milliseconds limit = std::chrono::seconds{3});

/// Probes many addresses at the same time.
void probe_all(google::protobuf::RepeatedPtrField<proto::Reach>& addresses);

} // namespace troupe
