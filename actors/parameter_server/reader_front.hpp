#pragma once

#include "actors/parameter_server/live_weights.hpp"
#include "actors/parameter_server/pulled_versions.hpp"
#include "actors/parameter_server/read_gate.hpp"
#include "actors/parameter_server/rounded_versions.hpp"
#include "actors/parameter_server/version_pool.hpp"
#include "actors/status/activity_board.hpp"
#include "actors/view.hpp"
#include "kernels/range.hpp"
#include "messages/interfaces.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// A message from a shard to its reader: the shard has decided about this gradient. If the gradient
/// was applied, the version that contains it is already published.
struct gradient_decided {
  std::uint32_t worker = 0;
  std::uint64_t sequence = 0;
};

} // namespace troupe

TROUPE_LOCAL_MESSAGE(troupe::gradient_decided)

namespace troupe {

/// The message that a shard sends to its reader.
using decision_listener = caf::typed_actor<rpc<void, gradient_decided>>;

/// Answers pulls with the newest version of a shard's weights. It shares only the version pool with
/// the shard, so a pull does not wait for an update. There is one exception: a worker may pull the
/// weights of its next step together with the commit of this step (Pull.after). The answer then
/// waits until the shard has decided about the gradient. The weights are not copied, except rows
/// that a pull selects.
///
/// With a gate (read_gate), a worker that must wait gets an answer without weights. With averages,
/// a pull by the coordinator (a pull without a worker) gets the averages instead of the weights. If
/// workers change the weights directly (`live`), a pull copies the weights.
class reader_front : public reader_actor::extend<rpc<void, gradient_decided>>::base {
public:
  using super = reader_actor::extend<rpc<void, gradient_decided>>::base;

  /// `versions` must not be null; the six other pointers may be. `pulled` records the version that
  /// each worker reads. `board` is the shard's activity board. If `rounded` is not null, workers
  /// get rounded weights.
  reader_front(caf::actor_config& cfg, std::uint64_t view, range where,
               std::shared_ptr<const version_pool> versions,
               std::shared_ptr<pulled_versions> pulled = nullptr,
               std::shared_ptr<activity_board> board = nullptr,
               std::shared_ptr<read_gate> gate = nullptr,
               std::shared_ptr<const version_pool> averages = nullptr,
               std::shared_ptr<live_weights> live = nullptr,
               std::shared_ptr<rounded_versions> rounded = nullptr);

  const char* name() const override { return "troupe.reader"; }
  std::uint64_t view_number() const noexcept { return view_; }

protected:
  behavior_type make_behavior() override;
  /// Answers waiting pulls with an error.
  void on_exit() override;

private:
  struct waiting_pull {
    proto::Pull header;
    caf::typed_response_promise<proto::Weights, payload> answer;
  };

  caf::result<proto::Weights, payload> on_pull(const proto::Pull& x);
  void on_decided(const gradient_decided& x);
  std::pair<proto::Weights, payload> weights_for(const proto::Pull& x);
  bool is_decided(const proto::Pull& x) const;

  std::uint64_t view_;
  range where_;
  std::shared_ptr<const version_pool> versions_;
  std::shared_ptr<pulled_versions> pulled_;
  std::shared_ptr<activity_board> board_;
  std::shared_ptr<read_gate> gate_;
  std::shared_ptr<const version_pool> averages_;
  std::shared_ptr<live_weights> live_;
  std::shared_ptr<rounded_versions> rounded_;
  /// For each worker: the sequence number of its newest decided gradient.
  std::map<std::uint32_t, std::uint64_t> decided_;
  /// Pulls that wait until the shard has decided about their gradient (Pull.after).
  std::vector<waiting_pull> waiting_;
};

} // namespace troupe
