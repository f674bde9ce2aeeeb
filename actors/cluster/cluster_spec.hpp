#pragma once

#include "messages/names.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A task as the text of a cluster names it: {"type": "chief", "index": 0}.
struct task_choice {
  std::string type;
  std::uint32_t index = 0;
};

/// "chief/0".
std::string to_string(const task_choice& x);

/// A process of the cluster.
struct cluster_process {
  /// As the text calls it.
  task_choice name;
  /// Where it listens, "host:port"; empty for an evaluator that the cluster does not name.
  std::string address;
  /// What runs there, the highest first.
  std::vector<task_name> tasks;
};

/// A ClusterSpec: which tasks there are, and where ("host:port"). Port 0 stands for any free port;
/// a task that has it must be able to tell the coordinator, so the coordinator itself cannot.
struct cluster_spec {
  std::map<task_name, std::string> tasks;
  /// The same by processes: the coordinator's may train, too.
  std::vector<cluster_process> processes;

  /// Adds a process and its tasks.
  void add(cluster_process process);

  /// Number of tasks of a job.
  std::size_t count(job_kind job) const;
};

/// What a cluster file, or the environment variable TF_CONFIG, says.
struct cluster_config {
  std::optional<cluster_spec> cluster;
  /// The task of the process that reads it.
  std::optional<task_choice> task;
};

/// Reads {"cluster": {"coordinator": ["host:port"], "ps": [...], "worker": [...]}, "task": {"type":
/// "ps", "index": 0}}, both optional. Keys beside them, as launchers for TensorFlow write them, are
/// let be, unless one looks like a misspelling.
///
/// The jobs of a cluster: `coordinator`, `ps`, `worker` (or `ring`, the same in clusters without
/// parameter servers), at most one `evaluator`; or as in TensorFlow:
/// - `chief` or `master`, with `ps`: it is the coordinator (as in ParameterServerStrategy);
/// - `chief` or `master`, without `ps`: it is the coordinator and worker 0, so that worker i of the
///   text is worker i + 1 here (MultiWorkerMirroredStrategy);
/// - none of these: worker 0 hosts the coordinator, too.
/// @param name what errors call the text, usually the path.
/// @throws input_error naming line and column, or the field's path: syntax, a key that stands
/// twice, a wrong type, an unknown job, an address that is not host:port or stands there twice, no
/// coordinator, no worker.
cluster_config parse_cluster_config(std::string_view text, std::string_view name);

/// `parse_cluster_config` of a text that must hold a cluster.
cluster_spec parse_cluster(std::string_view text, std::string_view name);

/// `parse_cluster` of a file.
cluster_spec load_cluster(const std::filesystem::path& path);

/// `parse_cluster_config` of a file that must hold a cluster.
cluster_config load_cluster_config(const std::filesystem::path& path);

/// The process that hosts a task of the text. `coordinator` stands for the process that hosts it,
/// `ring` for `worker`, and evaluator 0 is found even where the cluster does not name it.
/// @param who what errors call the choice: "--role=ps --task=3".
/// @param name what errors call the cluster.
/// @throws input_error: no such job, no such index (and how many there are).
cluster_process find_process(const cluster_spec& cluster, const task_choice& choice,
                             std::string_view who, std::string_view name);

/// The cluster as JSON, as parse_cluster reads it.
std::string to_json(const cluster_spec& x);

} // namespace troupe
