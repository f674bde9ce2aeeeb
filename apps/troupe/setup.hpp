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

/// Adds to the job the devices that are named in a cluster file. Throws input_error if the job
/// cannot use these devices.
void add_devices(proto::Job& job, const cluster_spec& cluster, const std::string& name);

/// The job's data, for a trained model (build_new_data).
/// @param weights path of the model's file of weights
job_data build_data_for(const proto::Job& job, const std::string& weights);

/// Adds line numbers of the job file to `problems` (the problems of a job, one per line). If the
/// file cannot be read again, returns them without line numbers.
std::string with_line_numbers(const std::string& problems, const std::string& path,
                              const std::vector<std::string>& overrides);

/// Calls `build` and returns its result. `build` uses the job that load_job has read from `path`.
/// If it throws input_error, problems in fields of the job get line numbers.
template <class Build>
auto with_job_lines(const std::string& path, const std::vector<std::string>& overrides,
                    const Build& build) {
  try {
    return build();
  } catch (const input_error& error) {
    throw input_error{with_line_numbers(error.what(), path, overrides)};
  }
}

/// Throws input_error if the job's protocol needs parameter servers and their number `ps` is 0.
void require_shards(const proto::Job& job, std::size_t ps);

/// Throws input_error if the job's protocol needs all tasks in one process, but the cluster has
/// several processes.
void require_one_process(const proto::Job& job, bool several);

/// Makes everything that the coordinator of a cluster with `ps` parameter servers needs. The caller
/// adds the tasks. This function reads the data, builds the model, and creates the output
/// directory. If `resume` is present, it also reads a checkpoint (see choose_checkpoint). Throws
/// input_error.
coordinator_setup make_coordinator_setup(const proto::Job& given, std::size_t workers,
                                         std::size_t ps, const std::optional<std::string>& resume);

/// A random number for one start of a node. It distinguishes this start from all others.
std::uint64_t make_incarnation();

} // namespace troupe
