#include "apps/troupe/choose.hpp"

#include <cstdlib>

namespace troupe {

cluster_choice choose(const task_options& x) {
  cluster_sources sources;
  sources.file = x.cluster;
  sources.role = x.role;
  sources.task = x.task;
  if (const char* text = std::getenv("TF_CONFIG"); text && *text)
    sources.environment = text;
  return choose_cluster(sources);
}

} // namespace troupe
