#pragma once

#include "actors/cluster/cluster_spec.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// The sources that tell a process its cluster and its task: command line, cluster file,
/// environment.
struct cluster_sources {
  /// The value of --cluster; empty if the option is missing.
  std::string file;
  /// The values of --role and --task.
  std::optional<std::string> role;
  std::optional<std::uint32_t> task;
  /// The value of the environment variable TF_CONFIG, if it is set.
  std::optional<std::string> environment;
};

struct cluster_choice {
  cluster_spec cluster;
  /// The name of the cluster in errors: the path of its file, or "TF_CONFIG".
  std::string name;
  /// The entry of this process in the cluster; absent if no source names the process.
  std::optional<cluster_process> process;
  /// The file with the cluster's secret, from the same source as the cluster. Empty if there is no
  /// secret.
  std::string secret_file;
};

/// Finds the cluster, and the task of this process. The two may come from different sources. For
/// each, the command line takes precedence over the file, and the file over TF_CONFIG. TF_CONFIG is
/// read only if the other sources do not name both. A task index in a file is used only if the role
/// comes from the same file. So --role without --task means task 0.
/// @throws input_error like parse_cluster_config and find_process; also if there is no cluster.
cluster_choice choose_cluster(const cluster_sources& sources);

} // namespace troupe
