#pragma once

#include "actors/cluster/transport.hpp"

#include <chrono>

namespace troupe {

/// The framework's own network protocol (BASP) over TCP.
class basp_transport : public transport {
public:
  /// The system must have loaded `caf::io::middleman`. The constructor makes the framework's own
  /// servers ("SpawnServ", "ConfigServ") in this system unreachable for other processes. Otherwise,
  /// any program that connects could start actors here, and store and read values.
  explicit basp_transport(caf::actor_system& sys,
                          std::chrono::milliseconds timeout = std::chrono::seconds{5});

  void dial(const task_name& task, const std::string& address, dial_listener listener) override;

  /// Makes a node reachable at host:port. Port 0 selects a free port. Returns the port. Throws
  /// input_error if this is impossible, for example because the port is in use. Blocks briefly; do
  /// not call it from an actor.
  static std::uint16_t listen(caf::actor_system& sys, const caf::strong_actor_ptr& node,
                              const std::string& host, std::uint16_t port);

private:
  caf::actor_system& sys_;
  std::chrono::milliseconds timeout_;
};

} // namespace troupe
