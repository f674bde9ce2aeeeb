#pragma once

#include "actors/parameter_server/ps_synchronizer.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/shard_policy.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// What workers read last, where the job's protocol needs it; else null.
std::shared_ptr<pulled_versions> make_pulled_versions(const job_context& context,
                                                      std::size_t workers);

/// The policy of one shard, for the workers of these indices, in order of rank.
std::shared_ptr<shard_policy> make_shard_policy(std::shared_ptr<const job_context> context,
                                                range where, std::size_t shard,
                                                const std::vector<std::uint32_t>& workers,
                                                std::shared_ptr<pulled_versions> pulled);

/// How the synchronizer of one of so many workers treats its gradients.
void choose_manners(const proto::Job& job, std::size_t workers, ps_synchronizer_options& options);

} // namespace troupe
