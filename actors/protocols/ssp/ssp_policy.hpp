#pragma once

#include "actors/protocols/async_ps/async_policy.hpp"
#include "actors/protocols/ssp/step_clocks.hpp"

#include <memory>

namespace troupe {

/// The policy of SSP. It makes the same updates as ASYNC_PS with compensation AUTO. It also refuses
/// a gradient that exceeds the bound on staleness.
class ssp_policy : public async_policy {
public:
  ssp_policy(std::shared_ptr<const job_context> context, range where, std::size_t shard,
             std::size_t workers, std::shared_ptr<step_clocks> clocks);

  std::optional<std::string> refusal(const proto::Commit& x, std::uint64_t version) const override;
  void made(std::span<const float> before, std::span<const float> after,
            const proto::Pushed& decided) override;
  void left_out(const proto::Commit& x) override;
  void paused(const proto::Commit& x) override;
  void forget(std::uint32_t worker, std::uint64_t incarnation) override;
  admitted_readers admitted() override;

private:
  std::shared_ptr<step_clocks> clocks_;
};

} // namespace troupe
