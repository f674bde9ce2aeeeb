#pragma once

#include "actors/cluster/cluster_node.hpp"
#include "actors/cluster/cluster_spec.hpp"
#include "kernels/error.hpp"
#include "messages/proto/job.pb.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Loads a job for the command line: reads the file, applies the overrides, and validates the
/// result.
proto::Job load_job(const std::string& path, const std::vector<std::string>& overrides,
                    const std::string& protocol, const std::string& out);

/// Adds the devices of a cluster file to the job. Throws input_error if they do not fit it.
void add_devices(proto::Job& job, const cluster_spec& cluster, const std::string& name);

/// The problems of a job, one per line, with the line numbers of the job file if it can be read
/// again.
std::string with_line_numbers(const std::string& problems, const std::string& path,
                              const std::vector<std::string>& overrides);

/// Calls `build` with the job that load_job has read from `path`, and returns its result. If it
/// throws input_error, line numbers are added to the problems of the job's fields.
template <class Build>
auto with_job_lines(const std::string& path, const std::vector<std::string>& overrides,
                    const Build& build) {
  try {
    return build();
  } catch (const input_error& error) {
    throw input_error{with_line_numbers(error.what(), path, overrides)};
  }
}

/// Throws input_error if the job's protocol needs parameter shards and there are none.
void require_shards(const proto::Job& job, std::size_t ps);

/// Throws input_error if the job's protocol needs all tasks in one process, and they are in
/// several.
void require_one_process(const proto::Job& job, bool several);

/// Everything that the coordinator of a cluster with `ps` parameter shards needs. The data is read,
/// the model is built, the output directory is created, and a checkpoint is read if `resume`
/// requests it (see choose_checkpoint). The caller fills in the tasks. Throws input_error.
coordinator_setup make_coordinator_setup(const proto::Job& given, std::size_t workers,
                                         std::size_t ps, const std::optional<std::string>& resume);

/// A number that differs for each start of a node.
std::uint64_t make_incarnation();

} // namespace troupe
