#pragma once

#include "actors/cluster/cluster_spec.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// Where a process may learn which cluster it belongs to, and which task of it it is: the command
/// line, the cluster file, the environment.
struct cluster_sources {
  /// --cluster; empty where it was not given.
  std::string file;
  /// --role and --task.
  std::optional<std::string> role;
  std::optional<std::uint32_t> task;
  /// The value of the environment variable TF_CONFIG, if it is set.
  std::optional<std::string> environment;
};

struct cluster_choice {
  cluster_spec cluster;
  /// What errors call the cluster: the path, or "TF_CONFIG".
  std::string name;
  /// Which process this one is; nothing where no source says so.
  std::optional<cluster_process> process;
};

/// Decides, item by item: what the command line says counts before the file, and the file before
/// TF_CONFIG. An index goes with the role beside it: --role without --task is task 0. TF_CONFIG is
/// only read where something is missing.
/// @throws input_error as parse_cluster_config and find_process, and where there is no cluster.
cluster_choice choose_cluster(const cluster_sources& sources);

} // namespace troupe
