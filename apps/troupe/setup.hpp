#pragma once

#include "actors/cluster/cluster_node.hpp"
#include "messages/proto/job.pb.h"

#include <string>
#include <vector>

namespace troupe {

/// A job as the command line gives it: the file, with the overrides, validated.
proto::Job load_job(const std::string& path, const std::vector<std::string>& overrides,
                    const std::string& protocol, const std::string& out);

/// What the coordinator needs: data read, model built, output directory made. Throws input_error.
coordinator_setup make_coordinator_setup(const proto::Job& job, std::vector<expected_task> tasks);

/// A number that differs for each start of a node.
std::uint64_t make_incarnation();

} // namespace troupe
