#include "actors/protocols/ssp/ssp_policy.hpp"

#include <utility>

namespace troupe {

ssp_policy::ssp_policy(std::shared_ptr<const job_context> context, range where, std::size_t shard,
                       std::size_t workers, std::shared_ptr<step_clocks> clocks)
  : async_policy(std::move(context), where, shard, workers, nullptr), clocks_(std::move(clocks)) {}

std::optional<std::string> ssp_policy::refusal(const proto::Commit& x, std::uint64_t) const {
  return clocks_->refusal(x);
}

void ssp_policy::made(std::span<const float> before, std::span<const float> after,
                      const proto::Pushed& decided) {
  const auto header = parts().front().header;
  async_policy::made(before, after, decided);
  clocks_->committed(header);
}

void ssp_policy::left_out(const proto::Commit& x) {
  clocks_->committed(x);
}

void ssp_policy::paused(const proto::Commit& x) {
  clocks_->paused(x);
}

void ssp_policy::forget(std::uint32_t worker, std::uint64_t incarnation) {
  async_policy::forget(worker, incarnation);
  clocks_->forget(worker);
}

shard_policy::admitted_readers ssp_policy::admitted() {
  auto workers = clocks_->take_admitted();
  return {clocks_->slowest(), std::move(workers)};
}

} // namespace troupe
