#include "apps/troupe/commands.hpp"

#include "actors/cluster/secret_file.hpp"
#include "apps/troupe/children.hpp"
#include "apps/troupe/choose.hpp"
#include "apps/troupe/gpus.hpp"
#include "apps/troupe/limits.hpp"
#include "apps/troupe/logging.hpp"
#include "apps/troupe/processors.hpp"
#include "apps/troupe/session.hpp"
#include "apps/troupe/setup.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/printable.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace troupe {

namespace {

/// The address of a task to which no other task connects. Port 0 stands for any free port.
constexpr auto anywhere = "127.0.0.1:0";

std::string names_of(const cluster_process& x) {
  std::string result;
  for (auto& task : x.tasks)
    result += (result.empty() ? "" : " and ") + to_string(task);
  return result;
}

proto::Job job_of(const node_command& x) {
  auto result = load_job(x.job, x.overrides, "", x.out);
  if (x.join_timeout)
    result.mutable_runtime()->set_join_timeout_ms(
      static_cast<std::uint32_t>(*x.join_timeout * 1e3));
  return result;
}

void add_coordinator(session_options& session, const node_command& x,
                     const cluster_choice& chosen) {
  if (x.job.empty())
    throw input_error{to_string(chosen.process->name)
                      + " runs the coordinator, which needs --job=FILE"};
  auto job = job_of(x);
  add_devices(job, chosen.cluster, chosen.name);
  auto setup = with_job_lines(x.job, x.overrides, [&] {
    return make_coordinator_setup(job, chosen.cluster.count(job_kind::worker),
                                  chosen.cluster.count(job_kind::ps), x.resume);
  });
  const cluster_shape shape{chosen.cluster.count(job_kind::worker),
                            chosen.cluster.count(job_kind::ps), true, !setup.output.empty()};
  check_tasks(*setup.context, shape, chosen.name, chosen.name);
  check_devices(*setup.context, shape.workers, shape.ps, chosen.process->tasks,
                session.node.gpus.get());
  const auto needed_by = [&](const std::vector<task_name>& tasks) {
    return memory_of(tasks, *setup.context, setup.data, shape);
  };
  check_memory(node_memory_problem(total_of(needed_by(chosen.process->tasks)),
                                   needed_by(tasks_beside(chosen.cluster.tasks, coordinator_task))),
               "make model or batch smaller, or run fewer tasks here");
  for (auto& [name, address] : chosen.cluster.tasks)
    if (name != coordinator_task)
      setup.tasks.push_back({name, address});
  // The coordinator has read the data. A worker in the same process uses this data and does not
  // read it again.
  session.node.source = [data = setup.data](const proto::Job&) { return data; };
  session.node.coordinator = std::move(setup);
}

session_options session_of(const node_command& x, const cluster_choice& chosen) {
  const auto& process = *chosen.process;
  session_options result;
  result.name = to_string(process.name);
  result.listen = process.address.empty() ? anywhere : process.address;
  result.insecure = x.insecure;
  result.transport = x.transport;
  result.channel_port = x.channel_port;
  result.node.tasks = process.tasks;
  result.node.incarnation = make_incarnation();
  result.node.source = build_data;
  result.node.gpus = gpus_here(x.devices);
  result.node.memory_problem = node_memory_problem;
  result.node.coordinator_address = chosen.cluster.tasks.at(coordinator_task);
  result.node.cluster = chosen.cluster.tasks;
  if (!chosen.secret_file.empty()) {
    auto secret = read_secret(chosen.secret_file);
    result.node.links.secret = std::move(secret.text);
    if (!secret.warning.empty())
      spdlog::warn("{}", secret.warning);
  }
  if (x.join_timeout)
    result.node.join_timeout =
      std::chrono::milliseconds{static_cast<std::int64_t>(*x.join_timeout * 1e3)};
  return result;
}

} // namespace

int run(const node_command& x) {
  if (x.parent != 0)
    end_with_parent(x.parent);
  if (x.processor)
    bind_to(*x.processor);
  if (x.job.empty() && !x.overrides.empty())
    throw input_error{"--set=" + x.overrides.front()
                      + ": changes a field of the job, and there is no --job; only the "
                        "coordinator needs both"};
  const auto chosen = choose(x.where);
  if (!chosen.process)
    throw input_error{"which task of " + chosen.name
                      + " is this? Give --role and --task, a \"task\" in the cluster file, or "
                        "TF_CONFIG"};
  const auto& process = *chosen.process;
  start_logging(x.log_level, to_string(process.name));
  auto session = session_of(x, chosen);
  const bool coordinates = process.tasks.front() == coordinator_task;
  if (coordinates)
    add_coordinator(session, x, chosen);
  else if (!x.job.empty())
    session.node.job = job_of(x);
  if (!coordinates && (x.resume || !x.out.empty()))
    spdlog::info("{} ignores {}: only the coordinator uses it", to_string(process.name),
                 x.resume && !x.out.empty() ? "--resume and --out"
                   : x.resume               ? "--resume"
                                            : "--out");
  // Reports use troupe's names of tasks, which may differ from the names in the cluster file.
  if (names_of(process) != to_string(process.name))
    spdlog::info("{} of {} is {}", to_string(process.name), chosen.name, names_of(process));
  if (!coordinates)
    session.ended = [](const run_summary& x) {
      if (!x.failure.empty())
        spdlog::error("{}", printable(x.failure, true));
    };
  return run_session(std::move(session)).failure.empty() ? exit_done : exit_failed;
}

} // namespace troupe
