#include "apps/troupe/commands.hpp"

#include "actors/cluster/cluster_spec.hpp"
#include "apps/troupe/children.hpp"
#include "apps/troupe/limits.hpp"
#include "apps/troupe/logging.hpp"
#include "apps/troupe/session.hpp"
#include "apps/troupe/setup.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace troupe {

namespace {

task_name task_of(const node_command& x, const cluster_spec& cluster) {
  task_name result;
  result.index = x.task;
  if (!parse_job(x.role == "ring" ? "worker" : x.role, result.job))
    throw input_error{fmt::format(
      "--role={}: there is no such role; valid: coordinator, ps, worker, ring", x.role)};
  if (!cluster.tasks.contains(result))
    throw input_error{fmt::format("--role={} --task={}: {} has {} such task{}", x.role, x.task,
                                  x.cluster, cluster.count(result.job),
                                  cluster.count(result.job) == 1 ? "" : "s")};
  if (x.role == "ring" && cluster.count(job_kind::ps) > 0)
    throw input_error{"--role=ring is for clusters without ps tasks; use --role=worker"};
  return result;
}

} // namespace

int run(const node_command& x) {
  if (x.parent != 0)
    end_with_parent(x.parent);
  const auto cluster = load_cluster(x.cluster);
  const auto task = task_of(x, cluster);
  session_options session;
  start_logging(x.log_level, to_string(task));
  session.listen = cluster.tasks.at(task);
  session.insecure = x.insecure;
  session.node.tasks = {task};
  session.node.incarnation = make_incarnation();
  session.node.source = build_data;
  session.node.coordinator_address = cluster.tasks.at(coordinator_task);
  if (task == coordinator_task) {
    if (x.job.empty())
      throw input_error{"--role=coordinator needs --job=FILE"};
    auto setup =
      make_coordinator_setup(load_job(x.job, x.overrides, "", x.out), cluster.count(job_kind::ps));
    check_tasks(*setup.context, {cluster.count(job_kind::worker), cluster.count(job_kind::ps)},
                x.cluster, x.cluster);
    for (auto& [name, address] : cluster.tasks)
      if (name != coordinator_task)
        setup.tasks.push_back({name, address});
    session.node.coordinator = std::move(setup);
  } else if (!x.job.empty()) {
    session.node.job = load_job(x.job, x.overrides, "", "");
  }
  const auto result = run_session(std::move(session));
  if (result.failure.empty())
    return exit_done;
  if (task != coordinator_task)
    spdlog::error("{}", printable(result.failure, true));
  return exit_failed;
}

} // namespace troupe
