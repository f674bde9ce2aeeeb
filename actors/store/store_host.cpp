#include "actors/cluster/address.hpp"
#include "actors/spawner.hpp"
#include "actors/store/store.hpp"
#include "actors/store/store_server.hpp"
#include "actors/store/store_state.hpp"
#include "kernels/error.hpp"

#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds shortest_store_deadline{20};
constexpr std::size_t most_servers = 1024;
/// Largest number of connected clients.
constexpr std::size_t most_connections = 1024;

store_actor spawn_server(caf::actor_system& sys, const store_options& options, std::size_t index,
                         std::size_t servers, std::shared_ptr<idle_task> idle = nullptr) {
  const spawner how{spawner::kind::threads, std::move(idle)};
  return how.spawn_computing<store_server>(sys, split_evenly(options.elements, servers), index,
                                           options.rule);
}

} // namespace

void check(const store_options& options, std::size_t servers) {
  if (servers == 0 || servers > most_servers)
    throw input_error{"a store of " + std::to_string(servers) + " servers: expected 1 to "
                      + std::to_string(most_servers)};
  if (options.elements == 0)
    throw input_error{"store_options::elements is 0: expected at least 1"};
  if (options.deadline < shortest_store_deadline)
    throw input_error{"store_options::deadline is " + std::to_string(options.deadline.count())
                      + " ms: expected at least "
                      + std::to_string(shortest_store_deadline.count())};
  const auto& update = options.rule.update;
  if (update && (update->by_tensor() || update->clip_norm > 0))
    throw input_error{"store_options::rule has lamb or clip_norm, which need the gradient of all "
                      "servers at once: use another rule"};
  for (const auto& address : options.addresses) {
    std::string host;
    std::uint16_t port = 0;
    if (!split_address(address, host, port) || port == 0)
      throw input_error{"'" + address + "' in store_options::addresses is not host:port"};
  }
}

store_host::state::state(caf::actor_system& sys, const store_options& x, store_actor y)
  : options(x), server(std::move(y)), self(sys) {}

store_host::state::~state() {
  if (!server)
    return; // There is no server if listen() failed before it spawned one.
  self->send_exit(server, caf::exit_reason::user_shutdown);
  self->wait_for(server);
}

store_host::store_host(std::unique_ptr<state> x) : state_(std::move(x)) {}
store_host::store_host(store_host&& other) noexcept = default;
store_host& store_host::operator=(store_host&& other) noexcept = default;
store_host::~store_host() = default;

std::vector<store_host> store_host::in_one_system(caf::actor_system& sys, std::size_t servers,
                                                  const store_options& options) {
  check(options, servers);
  std::vector<store_host> result;
  for (std::size_t s = 0; s < servers; ++s)
    result.push_back(
      store_host{std::make_unique<state>(sys, options, spawn_server(sys, options, s, servers))});
  return result;
}

store_host store_host::listen(caf::actor_system& sys, std::size_t index,
                              const store_options& options) {
  const auto servers = options.addresses.size();
  check(options, servers);
  if (index >= servers)
    throw input_error{"server " + std::to_string(index) + " of a store with "
                      + std::to_string(servers) + " addresses: servers count from 0"};
  auto x = std::make_unique<state>(sys, options, store_actor{});
  peer_host_options how;
  how.node.self = store_task(index);
  how.spawn_resident = [&](std::shared_ptr<idle_task> idle) {
    x->server = spawn_server(sys, options, index, servers, std::move(idle));
    return caf::actor_cast<caf::strong_actor_ptr>(x->server);
  };
  how.node.service = proto::SHARD;
  how.node.strangers = most_connections;
  how.node.links.transfer.max_bytes = options.elements * sizeof(float);
  how.address = options.addresses[index];
  how.by = options.transport;
  how.deadline = options.deadline;
  x->host.emplace(sys, std::move(how));
  return store_host{std::move(x)};
}

} // namespace troupe
