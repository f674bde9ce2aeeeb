#pragma once

#include "actors/store/store.hpp"

#include <optional>

// Declarations that store_host and store_client share.

namespace troupe {

/// Throws input_error if an option is invalid.
void check(const store_options& options, std::size_t servers);

/// The task name of a server.
inline task_name store_task(std::size_t server) {
  return {job_kind::ps, static_cast<std::uint32_t>(server)};
}

class store_host::state {
public:
  state(caf::actor_system& sys, const store_options& x, store_actor y);
  ~state();
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  store_options options;
  store_actor server;
  std::optional<peer_host> host;
  caf::scoped_actor self;
};

} // namespace troupe
