#pragma once

#include "actors/cluster/cluster_spec.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// The sources from which a process learns its cluster and its task: command line, cluster file,
/// environment.
struct cluster_sources {
  /// --cluster; empty if not given.
  std::string file;
  /// --role and --task.
  std::optional<std::string> role;
  std::optional<std::uint32_t> task;
  /// The value of the environment variable TF_CONFIG, if it is set.
  std::optional<std::string> environment;
};

struct cluster_choice {
  cluster_spec cluster;
  /// Name of the cluster in errors: the path, or "TF_CONFIG".
  std::string name;
  /// This process; absent if no source names it.
  std::optional<cluster_process> process;
  /// The file with the cluster's secret, from the same source as the cluster. Empty if there is no
  /// secret.
  std::string secret_file;
};

/// Decides about the cluster and about the task separately: the command line takes precedence over
/// the file, and the file over TF_CONFIG. The index in a file counts only together with the role in
/// the same file, so --role without --task means task 0. TF_CONFIG is read only if the other
/// sources leave a value open.
/// @throws input_error like parse_cluster_config and find_process; also if there is no cluster.
cluster_choice choose_cluster(const cluster_sources& sources);

} // namespace troupe
