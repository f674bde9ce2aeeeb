#include "apps/troupe/limits.hpp"

#include "apps/troupe/numbers.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace troupe {

namespace {

/// The number in a file of the system. Returns `none` if the file does not exist, or if it contains
/// another text, such as "max".
std::size_t number_in(const std::filesystem::path& file, std::size_t none) {
  std::size_t result = 0;
  return std::ifstream{file} >> result ? result : none;
}

std::size_t memory_of_host() {
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  const auto page = ::sysconf(_SC_PAGESIZE);
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
}

/// The text of memory_problem(). Empty if `here` bytes are enough.
std::string problem_text(std::size_t needed, std::size_t here, const std::string& whose) {
  return needed <= here ? ""
                        : fmt::format("this would take about {} of memory{}, and this host has {}",
                                      readable_bytes(needed), whose, readable_bytes(here));
}

/// The tasks and their memory, such as "coordinator/0 (1.0 GiB), 2 ps (up to 3.0 GiB each)".
std::string figures(const std::vector<task_memory>& tasks) {
  std::string result;
  for (auto job : {job_kind::coordinator, job_kind::ps, job_kind::worker, job_kind::evaluator}) {
    std::size_t count = 0;
    task_memory largest;
    for (auto& x : tasks)
      if (x.task.job == job && (++count == 1 || x.bytes > largest.bytes))
        largest = x;
    if (count == 0)
      continue;
    const auto bytes = readable_bytes(largest.bytes);
    result += (result.empty() ? "" : ", ")
      + (count == 1 ? fmt::format("{} ({})", to_string(largest.task), bytes)
                    : fmt::format("{} {} (up to {} each)", count,
                                  job == job_kind::worker ? "workers" : to_string(job), bytes));
  }
  return result;
}

/// The smallest memory limit, in bytes, of this process's control group and of all groups above it.
/// Returns `none` if no group has a limit.
std::size_t group_limit(std::size_t none) {
  const std::filesystem::path root{"/sys/fs/cgroup"};
  // The limit in version 1 of control groups. The loop below reads the limits in version 2.
  auto result = number_in(root / "memory" / "memory.limit_in_bytes", none);
  std::filesystem::path group;
  std::ifstream groups{"/proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::/"))
      group = line.substr(4);
  for (;; group = group.parent_path()) {
    result = std::min(result, number_in(root / group / "memory.max", none));
    if (group.empty())
      return result;
  }
}

} // namespace

void check_tasks(const job_context& context, const cluster_shape& cluster,
                 const std::string& workers_from, const std::string& ps_from) {
  const std::uint64_t batch = context.batch();
  const auto records = context.data.train_records;
  const auto batches = (records + batch - 1) / batch;
  if (cluster.workers > batches)
    throw input_error{fmt::format(
      "{}: {} workers, but an epoch has only {} {} ({} records in batches of {}): some would "
      "have nothing to do; use {}, or a smaller data.batch",
      workers_from, cluster.workers, batches, batches == 1 ? "batch" : "batches", records, batch,
      batches == 1 ? "1 worker" : fmt::format("{} workers or fewer", batches))};
  if (cluster.ps > context.parameters().size())
    throw input_error{fmt::format("{}: {} parameter shards, but the model has only {} parameters",
                                  ps_from, cluster.ps, context.parameters().size())};
}

void check_writable(const std::string& option, const std::filesystem::path& file,
                    const std::string& advice) {
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path{"."};
  std::error_code ignored;
  std::string problem;
  if (!std::filesystem::is_directory(folder, ignored))
    problem = "there is no directory " + folder.string();
  else if (::access(folder.c_str(), W_OK | X_OK) != 0)
    problem = "the directory " + folder.string() + " is not writable";
  else if (std::filesystem::exists(file, ignored)
           && !std::filesystem::is_regular_file(file, ignored))
    problem = "it exists but is not a file";
  if (!problem.empty())
    throw input_error{option + '=' + file.string() + ": " + problem + "; " + advice};
}

std::size_t memory_here() {
  auto result = group_limit(memory_of_host());
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    result = std::min(result, static_cast<std::size_t>(addresses.rlim_cur));
  return result;
}

std::string memory_problem(std::size_t needed) {
  return problem_text(needed, memory_here(), "");
}

std::string memory_problem(const std::vector<task_memory>& on_host, bool group) {
  const auto host = memory_of_host();
  return problem_text(total_of(on_host), group ? group_limit(host) : host,
                      " for " + figures(on_host));
}

std::string node_memory_problem(std::size_t own, const std::vector<task_memory>& on_host) {
  auto problem = memory_problem(own);
  if (problem.empty())
    problem = memory_problem(on_host, false);
  if (problem.empty())
    if (const auto shared = memory_problem(on_host, true); !shared.empty())
      spdlog::warn("{}: the system will end tasks if they share this limit", shared);
  return problem;
}

void check_memory(const std::string& problem, const std::string& advice) {
  if (!problem.empty())
    throw input_error{problem + ": " + advice + " (`troupe check` shows the memory of each part)"};
}

} // namespace troupe
