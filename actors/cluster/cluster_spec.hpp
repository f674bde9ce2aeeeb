#pragma once

#include "messages/names.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A ClusterSpec: which tasks there are, and where ("host:port"). Port 0 stands for any free port;
/// a task that has it must be able to tell the coordinator, so the coordinator itself cannot.
struct cluster_spec {
  std::map<task_name, std::string> tasks;

  /// Number of tasks of a job.
  std::size_t count(job_kind job) const;
};

/// Reads {"cluster": {"coordinator": ["host:port"], "ps": [...], "worker": [...]}}, where "ring"
/// stands for "worker" in clusters without parameter servers.
/// @param name what errors call the text, usually the path.
/// @throws input_error naming the place: syntax, unknown job, address that is not host:port or
/// stands there twice, no coordinator, no worker.
cluster_spec parse_cluster(std::string_view text, std::string_view name);

/// `parse_cluster` of a file.
cluster_spec load_cluster(const std::filesystem::path& path);

/// The cluster as JSON, as parse_cluster reads it.
std::string to_json(const cluster_spec& x);

} // namespace troupe
