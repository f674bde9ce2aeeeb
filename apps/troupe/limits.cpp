#include "apps/troupe/limits.hpp"

#include "apps/troupe/numbers.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

namespace troupe {

namespace {

/// The number in a file of the system. Gives `none` if the file does not exist or contains no
/// number, such as "max".
std::size_t number_in(const std::filesystem::path& file, std::size_t none) {
  std::size_t result = 0;
  return std::ifstream{file} >> result ? result : none;
}

/// The smallest limit of this process's control group and of all groups above it.
std::size_t group_limit(std::size_t none) {
  const std::filesystem::path root{"/sys/fs/cgroup"};
  // Control groups of version 1.
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
    throw input_error{fmt::format("{}: {} workers, but an epoch has only {} batches ({} records in "
                                  "batches of {}), so some would "
                                  "have no work; use {} workers or fewer, or a smaller data.batch",
                                  workers_from, cluster.workers, batches, records, batch, batches)};
  if (cluster.ps > context.parameters().size())
    throw input_error{fmt::format("{}: {} parameter shards, but the model has only {} parameters",
                                  ps_from, cluster.ps, context.parameters().size())};
}

std::size_t memory_here() {
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  const auto page = ::sysconf(_SC_PAGESIZE);
  auto result = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  result = std::min(result, group_limit(result));
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    result = std::min(result, static_cast<std::size_t>(addresses.rlim_cur));
  return result;
}

std::string memory_problem(std::size_t needed) {
  const auto here = memory_here();
  return needed <= here ? ""
                        : fmt::format("this would take about {} of memory, and this host has {}",
                                      readable_bytes(needed), readable_bytes(here));
}

void check_memory(std::size_t needed, const std::string& advice) {
  if (const auto problem = memory_problem(needed); !problem.empty())
    throw input_error{problem + ": " + advice + " (`troupe check` shows the memory of each part)"};
}

} // namespace troupe
