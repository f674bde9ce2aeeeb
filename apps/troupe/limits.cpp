#include "apps/troupe/limits.hpp"

#include "apps/troupe/numbers.hpp"
#include "kernels/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <unistd.h>

namespace troupe {

namespace {

/// Memory of this host, or of the container that it runs in.
std::size_t memory_here() {
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  const auto page = ::sysconf(_SC_PAGESIZE);
  auto result = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  // Holds "max" instead of a number if there is no limit.
  std::size_t limit = 0;
  if (std::ifstream{"/sys/fs/cgroup/memory.max"} >> limit)
    result = std::min(result, limit);
  return result;
}

} // namespace

void check_tasks(const job_context& context, const cluster_shape& cluster,
                 const std::string& workers_from, const std::string& ps_from) {
  const std::uint64_t batch = context.batch();
  const auto records = context.data.train_records;
  const auto batches = (records + batch - 1) / batch;
  if (cluster.workers > batches)
    throw input_error{fmt::format(
      "{}: {} workers, but an epoch has only {} batches ({} records in batches of {}): some would "
      "have nothing to do; use {} workers or fewer, or a smaller data.batch",
      workers_from, cluster.workers, batches, records, batch, batches)};
  if (cluster.ps > context.parameters().size())
    throw input_error{fmt::format("{}: {} parameter shards, but the model has only {} parameters",
                                  ps_from, cluster.ps, context.parameters().size())};
}

void check_memory(const footprint& needed) {
  if (needed.total() > memory_here())
    throw input_error{fmt::format(
      "this would take about {} of memory, and this host has {}: use fewer --workers and --ps, or "
      "more hosts (`troupe check` shows what takes how much)",
      readable_bytes(needed.total()), readable_bytes(memory_here()))};
}

} // namespace troupe
