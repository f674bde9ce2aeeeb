#include "actors/protocols/shard_policies.hpp"

#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/sync_ps/sync_policy.hpp"

namespace troupe {

std::shared_ptr<pulled_versions> make_pulled_versions(const job_context& context,
                                                      std::size_t workers) {
  if (context.job.protocol() != proto::ASYNC_PS)
    return nullptr;
  const auto how = compensation_of(context.job, workers);
  return how == proto::AsyncPs::GAP_AWARE || how == proto::AsyncPs::DC
    ? std::make_shared<pulled_versions>()
    : nullptr;
}

std::shared_ptr<shard_policy> make_shard_policy(std::shared_ptr<const job_context> context,
                                                range where, std::size_t shard,
                                                const std::vector<std::uint32_t>& workers,
                                                std::shared_ptr<pulled_versions> pulled) {
  if (context->job.protocol() == proto::SYNC_PS)
    return std::make_shared<sync_policy>(where, workers);
  return std::make_shared<async_policy>(std::move(context), where, shard, workers.size(),
                                        std::move(pulled));
}

void choose_manners(const proto::Job& job, std::size_t workers, ps_synchronizer_options& options) {
  options.in_step = job.protocol() == proto::SYNC_PS;
  if (!options.in_step && compensation_of(job, workers) == proto::AsyncPs::AUTO)
    options.limit = limit_factor;
  options.admission = !options.in_step && job.async_ps().has_max_staleness();
}

} // namespace troupe
