#include "apps/troupe/commands.hpp"

#include "actors/cluster/cluster_spec.hpp"
#include "actors/cluster/local_cluster.hpp"
#include "apps/troupe/children.hpp"
#include "apps/troupe/gpus.hpp"
#include "apps/troupe/limits.hpp"
#include "apps/troupe/logging.hpp"
#include "apps/troupe/processors.hpp"
#include "apps/troupe/session.hpp"
#include "apps/troupe/setup.hpp"
#include "kernels/error.hpp"
#include "kernels/file_descriptor.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <iterator>
#include <system_error>

#include <sys/mman.h>
#include <unistd.h>

namespace troupe {

namespace {

/// How long child processes may take to end after the run.
constexpr std::chrono::milliseconds child_patience{10'000};

cluster_process process_of(const task_name& task, const std::string& address) {
  cluster_process result;
  result.name.type = to_string(task.job);
  result.name.index = task.index;
  result.address = address;
  result.tasks.push_back(task);
  return result;
}

/// The processor on which each worker must run. Empty if the system chooses processors. A worker
/// with several threads has no fixed processor, because its threads would share it.
std::vector<unsigned> processors_for(const proto::Job& job, const train_command& x) {
  const bool may = x.bind == "auto" && job.runtime().threads() == 1 && job.device().empty();
  return may ? processors_of(x.workers, allowed_processors()) : std::vector<unsigned>{};
}

/// Makes a file in memory. Nothing is left of it when this process has ended, even if it was
/// killed.
file_descriptor in_memory(const std::string& text) {
  file_descriptor result{::memfd_create("cluster.json", MFD_CLOEXEC)};
  if (!result || ::write(result.get(), text.data(), text.size()) != std::ssize(text))
    throw input_error{"cannot make a file in memory: " + std::generic_category().message(errno)};
  return result;
}

/// Runs the coordinator in this process, and every other task in a child process. The children read
/// the coordinator's address from a cluster file.
run_summary train_with_children(coordinator_setup setup, const std::vector<task_name>& tasks,
                                const train_command& x) {
  file_descriptor cluster_file;
  children others;
  session_options session;
  session.node.tasks = {coordinator_task};
  session.node.incarnation = make_incarnation();
  session.node.gpus = gpus_here(x.devices);
  for (auto& task : tasks)
    setup.tasks.push_back({task, ""});
  const bool elastic = setup.context->job.has_elastic();
  const auto processors = processors_for(setup.context->job, x);
  session.node.coordinator = std::move(setup);
  session.listen = "127.0.0.1:0";
  session.transport = x.transport;
  session.watch = [&] {
    if (elastic)
      others.restart_killed();
    return others.failed();
  };
  session.hear = [&] {
    if (elastic)
      others.restart_killed();
    return others.said();
  };
  session.listening = [&](const std::string& address) {
    cluster_spec cluster;
    cluster.add(process_of(coordinator_task, address));
    for (auto& task : tasks)
      cluster.add(process_of(task, "127.0.0.1:0"));
    cluster_file = in_memory(to_json(cluster));
    // Children open this process's descriptor. They may also be started later.
    const auto file = fmt::format("/proc/{}/fd/{}", ::getpid(), cluster_file.get());
    for (auto& task : tasks) {
      std::vector<std::string> arguments{"node",
                                         fmt::format("--role={}", to_string(task.job)),
                                         fmt::format("--task={}", task.index),
                                         "--cluster=" + file,
                                         "--transport=" + x.transport,
                                         fmt::format("--ends-with-parent={}", ::getpid())};
      if (!x.log_level.empty())
        arguments.push_back("--log-level=" + x.log_level);
      if (!x.devices.empty())
        arguments.push_back(fmt::format("--devices={}", fmt::join(x.devices, ",")));
      if (task.job == job_kind::worker && !processors.empty())
        arguments.push_back(fmt::format("--processor={}", processors.at(task.index)));
      others.start(to_string(task), arguments);
    }
  };
  auto result = run_session(std::move(session));
  const auto ends = others.end(child_patience);
  for (auto& line : others.said())
    fmt::print(stderr, "{}\n", line);
  if (!result.failure.empty())
    return result;
  for (const auto& x : ends)
    fmt::print(stderr, "{}\n", x.text());
  result.failure = problem_of(ends, result.gone);
  if (!result.failure.empty())
    fmt::print(stderr, "failed: {}; the results are complete\n", result.failure);
  return result;
}

run_summary train_here(coordinator_setup setup, const train_command& x, std::uint32_t ps) {
  session_options session;
  session.node = local_cluster(std::move(setup), x.workers, ps);
  session.node.gpus = gpus_here(x.devices);
  session.node.incarnation = make_incarnation();
  return run_session(std::move(session));
}

/// Throws input_error if the cluster takes more memory than this host has.
void check_cluster_memory(const job_context& context, const job_data& data,
                          const cluster_shape& shape) {
  const std::string advice = "use fewer --workers and --ps, or more hosts";
  if (!shape.separate) {
    check_memory(memory_problem(footprint_of_all(context, data, shape).total()), advice);
    return;
  }
  auto tasks =
    tasks_of(static_cast<std::uint32_t>(shape.workers), static_cast<std::uint32_t>(shape.ps));
  tasks.insert(tasks.begin(), coordinator_task);
  const auto needed = memory_of(tasks, context, data, shape);
  check_memory(memory_problem(needed, true), advice);
  // Each process must also stay within the limits of a single process (`ulimit -v`).
  for (auto& each : needed)
    check_memory(memory_problem(each.bytes), advice);
}

} // namespace

int run(const train_command& x) {
  start_logging(x.log_level, x.processes && !x.log_level.empty() ? "coordinator/0" : "");
  if (x.workers == 0)
    throw input_error{"--workers=0: at least one worker is needed"};
  const auto job = load_job(x.job, x.overrides, x.protocol, x.out);
  require_one_process(job, x.processes);
  const auto ps = x.ps.value_or(traits_of(job).default_shards());
  auto setup = with_job_lines(x.job, x.overrides,
                              [&] { return make_coordinator_setup(job, x.workers, ps, x.resume); });
  const cluster_shape shape{x.workers, ps, x.processes, !job.output().empty()};
  check_tasks(*setup.context, shape, "--workers", "--ps");
  auto tasks = tasks_of(x.workers, ps);
  tasks.push_back(coordinator_task);
  with_job_lines(x.job, x.overrides, [&] {
    check_devices(*setup.context, x.workers, ps, tasks, gpus_here(x.devices).get());
  });
  check_cluster_memory(*setup.context, setup.data, shape);
  const auto result = x.processes
    ? train_with_children(std::move(setup), tasks_of(x.workers, ps), x)
    : train_here(std::move(setup), x, ps);
  return result.failure.empty() ? exit_done : exit_failed;
}

} // namespace troupe
