#pragma once

#include "messages/names.hpp"

#include <chrono>
#include <span>
#include <string>

namespace troupe {

/// The first thing a node says to a new peer: its version and tasks. It
/// stands among the application identifiers of the handshake.
std::string identity_of(std::span<const task_name> tasks);

/// Resolves `x.address`, connects to it, and listens to what answers there; fills in what came of
/// it. Leaves the peer alone otherwise. Blocks for at most the limit, and as long as the system's
/// resolver needs.
void probe(proto::Reach& x, std::chrono::milliseconds limit = std::chrono::seconds{3});

/// Probes many addresses at once.
void probe_all(google::protobuf::RepeatedPtrField<proto::Reach>& addresses);

} // namespace troupe
