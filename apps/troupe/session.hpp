#pragma once

#include "actors/cluster/cluster_node.hpp"
#include "apps/troupe/exit_code.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// How this process takes part in a cluster. A node is the part of a cluster in one process. It has
/// one or more tasks.
struct session_options {
  node_options node;
  /// The address to listen on, "host:port". Empty if the whole cluster is in this process.
  std::string listen;
  /// Accept connections from any address, not only from this host.
  bool insecure = false;
  /// How messages travel over links (the connections between nodes). "auto": in shared memory
  /// between processes on one host, otherwise over TCP. "tcp": over TCP. "basp": over the
  /// framework's own network protocol.
  std::string transport = "auto";
  /// The port on which this process accepts connections for the messages of links. 0 selects a free
  /// port.
  std::uint16_t channel_port = 0;
  /// The name of this process in error messages, such as "worker/1"; may be empty.
  std::string name;
  /// Called with the node's address as soon as the node listens. May throw input_error.
  std::function<void(const std::string& address)> listening;
  /// Called with the result as soon as it is known. The actors of this process may not have ended
  /// yet.
  std::function<void(const run_summary&)> ended;
  /// Called every 100 ms until training begins. If it returns a text, the run ends, and the text is
  /// the reason of its failure. (After training has begun, the coordinator itself notices lost
  /// tasks, and decides whether the run continues.)
  std::function<std::optional<std::string>()> watch;
  /// Called every 100 ms until the run ends. Returns lines, which are shown as notices.
  std::function<std::vector<std::string>()> hear;
};

/// Runs a node in its own actor system until the node ends. SIGINT and SIGTERM ask the run to stop.
/// A second signal, more than a second later, ends the process at once. Call it once per process,
/// from the main thread, before any other thread is started.
run_summary run_session(session_options options);

} // namespace troupe
