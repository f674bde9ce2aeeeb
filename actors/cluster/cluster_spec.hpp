#pragma once

#include "messages/names.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A task as a cluster file names it: {"type": "chief", "index": 0}.
struct task_choice {
  std::string type;
  std::uint32_t index = 0;
};

/// Returns a text such as "chief/0".
std::string to_string(const task_choice& x);

/// A process of the cluster.
struct cluster_process {
  /// Its name in the cluster file.
  task_choice name;
  /// Its address, "host:port"; empty for an evaluator that the cluster does not name.
  std::string address;
  /// Its tasks. If it runs the coordinator and a worker, the coordinator is first.
  std::vector<task_name> tasks;
};

/// The tasks of a cluster and their addresses ("host:port"), like the ClusterSpec of TensorFlow.
/// With port 0, a task selects a free port and reports it to the coordinator. So the coordinator
/// itself cannot use port 0.
struct cluster_spec {
  std::map<task_name, std::string> tasks;
  /// The same tasks, by process. The coordinator's process may also run a worker.
  std::vector<cluster_process> processes;
  /// Devices of tasks, in the form of Job.device. They are appended to the job's devices, so they
  /// take precedence over the job's devices.
  std::vector<std::string> devices;

  /// Adds a process and its tasks.
  void add(cluster_process process);

  /// Number of tasks of a job.
  std::size_t count(job_kind job) const;
};

/// The contents of a cluster file or of the environment variable TF_CONFIG.
struct cluster_config {
  std::optional<cluster_spec> cluster;
  /// The task of the process that reads the text.
  std::optional<task_choice> task;
  /// The file with the cluster's secret. Empty if there is no secret.
  std::string secret_file;
};

/// Reads {"cluster": {"coordinator": ["host:port"], "ps": [...], "worker": [...]}, "task": {"type":
/// "ps", "index": 0}, "secret_file": "PATH", "device": ["/job:worker/task:0/device:GPU:1"]}; all
/// parts are optional, but devices need a cluster. Other keys are ignored, because launchers for
/// TensorFlow write them. A key that looks like a misspelling is an error.
///
/// A cluster has tasks of the types `coordinator`, `ps`, `worker` (or `ring`, which means the same
/// in clusters without parameter servers), and at most one `evaluator`. Names as in TensorFlow are
/// also possible:
/// - `chief` or `master` in a cluster with `ps` is the coordinator (as in ParameterServerStrategy);
/// - `chief` or `master` in a cluster without `ps` is the coordinator and worker 0 (as in
///   MultiWorkerMirroredStrategy). The text's worker i then becomes worker i + 1;
/// - if there is no coordinator, chief or master, worker 0 also runs the coordinator.
/// @param name the name of the text in errors, usually its path.
/// @throws input_error with line and column, or with the field's path. Reasons: wrong syntax, a
/// repeated key, a wrong type, an unknown job, no coordinator or no worker, an address that is not
/// host:port or occurs twice, a device of a task that does not exist.
cluster_config parse_cluster_config(std::string_view text, std::string_view name);

/// Like `parse_cluster_config`, for a text that must contain a cluster.
cluster_spec parse_cluster(std::string_view text, std::string_view name);

/// Like `parse_cluster`, for a file.
cluster_spec load_cluster(const std::filesystem::path& path);

/// Like `parse_cluster_config`, for a file that must contain a cluster. If the path of the secret
/// file is relative, it begins at the folder of the cluster file.
cluster_config load_cluster_config(const std::filesystem::path& path);

/// Finds the process that runs the task `choice` of the cluster file. If `choice.type` is
/// "coordinator", this is the process that runs the coordinator, whatever its name in the file. The
/// type "ring" means "worker". Evaluator 0 is found even if the cluster does not name it.
/// @param who the text that names the choice in errors, such as "--role=ps --task=3".
/// @param name the cluster's name in errors.
/// @throws input_error if there is no such job or no such index; the text says how many there are
cluster_process find_process(const cluster_spec& cluster, const task_choice& choice,
                             std::string_view who, std::string_view name);

/// The cluster as JSON that parse_cluster can read.
std::string to_json(const cluster_spec& x);

} // namespace troupe
