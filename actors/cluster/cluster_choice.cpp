#include "actors/cluster/cluster_choice.hpp"

#include "kernels/error.hpp"

namespace troupe {

namespace {

constexpr auto variable = "TF_CONFIG";

/// A choice of a task, and the text that names this choice in errors.
struct named_choice {
  task_choice task;
  std::string who;
};

std::optional<named_choice> choose_task(const cluster_sources& sources,
                                        const std::optional<task_choice>& in_file,
                                        const std::optional<task_choice>& in_environment) {
  named_choice result;
  const auto from = [&](std::string_view source, const task_choice& task) {
    result.task = task;
    result.who.append(source).append(": task ").append(to_string(task));
  };
  if (sources.role) {
    result.task.type = *sources.role;
    result.who.append("--role=").append(*sources.role);
  } else if (in_file) {
    from(sources.file, *in_file);
  } else if (in_environment) {
    from(variable, *in_environment);
  } else if (sources.task) {
    throw input_error{"--task=" + std::to_string(*sources.task)
                      + ": the kind of task is missing; add --role, for example --role=worker"};
  } else {
    return std::nullopt;
  }
  if (sources.task)
    result.task.index = *sources.task;
  if (sources.task || sources.role)
    result.who.append(" --task=").append(std::to_string(result.task.index));
  return result;
}

} // namespace

cluster_choice choose_cluster(const cluster_sources& sources) {
  cluster_config file;
  if (!sources.file.empty())
    file = load_cluster_config(sources.file);
  cluster_config environment;
  const bool complete = file.cluster && (sources.role || file.task);
  if (!complete && sources.environment)
    environment = parse_cluster_config(*sources.environment, variable);
  if (!file.cluster && !environment.cluster)
    throw input_error{sources.environment
                        ? std::string{"TF_CONFIG: cluster: missing; give it, or --cluster=FILE"}
                        : std::string{"give --cluster=FILE, or set the environment variable "
                                      "TF_CONFIG to the same text"}};
  cluster_choice result;
  result.name = file.cluster ? sources.file : variable;
  result.secret_file = file.cluster ? file.secret_file : environment.secret_file;
  result.cluster = file.cluster ? std::move(*file.cluster) : std::move(*environment.cluster);
  if (const auto choice = choose_task(sources, file.task, environment.task))
    result.process = find_process(result.cluster, choice->task, choice->who, result.name);
  return result;
}

} // namespace troupe
