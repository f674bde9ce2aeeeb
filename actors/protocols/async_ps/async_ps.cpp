#include "actors/protocols/async_ps/async_ps.hpp"

#include "actors/protocols/parameter_servers.hpp"

namespace troupe {

void start_async_ps_shard(const shard_site& site) {
  start_shard(site);
  site.ready();
}

} // namespace troupe
