// Fuzz target: TF_CONFIG, which contains the cluster and says which task this process is.

#include "actors/cluster/cluster_choice.hpp"
#include "tests/fuzz/target.hpp"

#include <algorithm>

using namespace troupe;

TROUPE_FUZZ_TARGET(tf_config, input) {
  cluster_sources sources;
  sources.environment = std::string{fuzz::as_text(input)};
  const auto chosen = choose_cluster(sources);
  fuzz::require(chosen.cluster.count(job_kind::coordinator) == 1, "a cluster has one coordinator");
  if (!chosen.process)
    return;
  fuzz::require(!chosen.process->tasks.empty(), "a process has a task");
  for (auto& task : chosen.process->tasks)
    fuzz::require(task.job == job_kind::evaluator || chosen.cluster.tasks.contains(task),
                  "a process's tasks are the cluster's");
}
