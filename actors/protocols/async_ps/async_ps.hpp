#pragma once

namespace troupe {

struct shard_site;

/// ASYNC_PS: a shard applies each gradient when it arrives, and waits for nobody.
void start_async_ps_shard(const shard_site& site);

} // namespace troupe
