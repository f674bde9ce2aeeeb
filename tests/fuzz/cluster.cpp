// Fuzz target: cluster files. They are parsed, written and parsed again.

#include "actors/cluster/cluster_spec.hpp"
#include "tests/fuzz/target.hpp"

using namespace troupe;

TROUPE_FUZZ_TARGET(cluster, input) {
  const auto cluster = parse_cluster(fuzz::as_text(input), "cluster.json");
  fuzz::require(cluster.count(job_kind::coordinator) == 1, "a cluster has one coordinator");
  fuzz::require(cluster.count(job_kind::worker) > 0, "a cluster has workers");
  fuzz::require(parse_cluster(to_json(cluster), "written").tasks == cluster.tasks,
                "a cluster that is written and read is the same cluster");
}
