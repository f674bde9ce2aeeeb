#include "actors/cluster/local_cluster.hpp"

namespace troupe {

std::vector<task_name> tasks_of(std::uint32_t workers, std::uint32_t ps) {
  std::vector<task_name> result;
  for (std::uint32_t i = 0; i < workers; ++i)
    result.push_back({job_kind::worker, i});
  for (std::uint32_t i = 0; i < ps; ++i)
    result.push_back({job_kind::ps, i});
  return result;
}

node_options local_cluster(coordinator_setup setup, std::uint32_t workers, std::uint32_t ps) {
  node_options result;
  result.tasks = {coordinator_task};
  setup.tasks.clear();
  for (auto& task : tasks_of(workers, ps)) {
    result.tasks.push_back(task);
    setup.tasks.push_back({task, ""});
  }
  result.source = [data = setup.data](const proto::Job&) { return data; };
  result.coordinator = std::move(setup);
  return result;
}

} // namespace troupe
