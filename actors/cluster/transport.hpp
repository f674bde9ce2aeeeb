#pragma once

#include "messages/names.hpp"
#include "messages/synchronizer.hpp"

#include <functional>
#include <string>

namespace troupe {

/// The result of an attempt to connect.
struct dialled {
  task_name task;
  /// The node at the other end; null if there is none.
  caf::strong_actor_ptr node;
  std::string problem;
  /// Closes the connection that was made. If the node at the other end does not answer over it, a
  /// later attempt then makes a new one. Empty if the network has no connections. The connection
  /// stays open as long as a copy of this function exists.
  std::function<void()> hang_up = {};
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::dialled)

namespace troupe {

using dial_listener = caf::typed_actor<rpc<void, dialled>>;

/// The network by which nodes connect to each other: the real network, or a simulated one.
class transport {
public:
  virtual ~transport();

  /// Connects to the node that listens at `address` ("host:port"). Makes one attempt. The listener
  /// receives `dialled` after success and after failure.
  virtual void dial(const task_name& task, const std::string& address, dial_listener listener) = 0;
};

} // namespace troupe
