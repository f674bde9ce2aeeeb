#pragma once

#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/read_gate.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/view.hpp"
#include "kernels/range.hpp"
#include "messages/interfaces.hpp"

#include <memory>

namespace troupe {

/// Serves pulls from a shard's newest published version. It shares only the version pool with the
/// writer, so a pull never waits for an update. It copies nothing, except rows that a pull selects.
/// If there is a gate, workers that must wait get an answer without weights. If there are averages,
/// a pull for a snapshot, without a worker, gets them instead of the weights.
class reader_front : public reader_actor::base {
public:
  /// `pulled`: records the version that each worker reads; may be null. `board`: the shard's; may
  /// be null. `gate` and `averages`: may be null.
  reader_front(caf::actor_config& cfg, std::uint64_t view, range where,
               std::shared_ptr<const version_pool> versions,
               std::shared_ptr<pulled_versions> pulled = nullptr,
               std::shared_ptr<activity_board> board = nullptr,
               std::shared_ptr<read_gate> gate = nullptr,
               std::shared_ptr<const version_pool> averages = nullptr);

  const char* name() const override { return "troupe.reader"; }
  std::uint64_t view_number() const noexcept { return view_; }

protected:
  behavior_type make_behavior() override;

private:
  caf::result<proto::Weights, payload> on_pull(const proto::Pull& x);

  std::uint64_t view_;
  range where_;
  std::shared_ptr<const version_pool> versions_;
  std::shared_ptr<pulled_versions> pulled_;
  std::shared_ptr<activity_board> board_;
  std::shared_ptr<read_gate> gate_;
  std::shared_ptr<const version_pool> averages_;
};

} // namespace troupe
