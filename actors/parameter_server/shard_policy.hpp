#pragma once

#include "actors/model/job_context.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

class live_weights;

/// A committed gradient of one worker. The payload is empty if it has no samples or is quarantined.
struct contribution {
  proto::Commit header;
  payload gradient;
};

/// An update of a shard's weights.
struct planned_update {
  /// Summed over `samples`; valid until `made()`.
  std::span<const float> gradient;
  /// 0 if the weights do not change.
  std::uint64_t samples = 0;
  range_updater::terms terms;
  /// False if this update only takes the gradients, and a later update changes the weights.
  bool complete = true;
};

/// How a protocol treats the gradients that workers commit at a shard: which ones it takes, which
/// ones form an update, and when. This is a plain object, not an actor. It belongs to one shard,
/// and only this shard calls it.
///
/// The shard has checked that a gradient is new, has the right size and is finite.
class shard_policy {
public:
  virtual ~shard_policy() = default;

  /// True if workers wait for each other, and each update takes a gradient from every worker. A
  /// commit is acknowledged at once; a separate message announces the update.
  virtual bool in_step() const noexcept = 0;

  /// The reason to refuse this gradient, if there is one.
  /// @param version version of the shard's weights
  virtual std::optional<std::string> refusal(const proto::Commit& x,
                                             std::uint64_t version) const = 0;

  /// The outcome of this gradient if its update is made without it. Absent if the gradient is in
  /// time.
  virtual std::optional<proto::Outcome> late(const proto::Commit& /*x*/,
                                             std::uint64_t /*version*/) const {
    return std::nullopt;
  }

  /// Takes a gradient. Returns false if it has already arrived.
  virtual bool take(contribution x) = 0;

  /// True if an update can be made.
  virtual bool ready() const noexcept = 0;

  /// True if shard 0 chooses the gradients of a step and tells the other shards (choose()).
  virtual bool chooses() const noexcept { return false; }
  /// In shards other than 0: exactly these gradients make the update of this step.
  virtual void choose(std::uint64_t /*step*/, std::vector<proto::GradientId> /*parts*/) {}
  /// A worker is lost. Called on shard 0. Takes the worker's gradient out of the next update,
  /// unless other shards may already know that the gradient counts. Returns true if a gradient was
  /// taken out.
  virtual bool withdraw(std::uint32_t /*worker*/) { return false; }
  /// A worker is lost. Called on shards other than 0. Of the worker's gradients that have arrived,
  /// those up to this sequence number count.
  virtual void settle(std::uint32_t /*worker*/, std::uint64_t /*sequence*/) {}
  /// Stops waiting for gradients of these workers for now. Called on shard 0 or, if gradients are
  /// held back (protocol_traits::holds_back), on all shards.
  virtual void set_idle(std::vector<std::uint32_t> /*workers*/) {}

  /// The gradients of the next update. If the update is not ready, the gradients that have arrived.
  /// Empty if the update consists only of gradients that were held back.
  virtual std::span<const contribution> parts() const noexcept = 0;

  /// The next update, once ready. It starts from `weights`, which have this version.
  virtual planned_update plan(std::span<const float> weights, std::uint64_t version) = 0;

  /// Records that the update was made. From now on, `parts()` returns the gradients of the next
  /// update.
  /// @param decided outcome of the first gradient of the update, if it has any
  virtual void made(std::span<const float> before, std::span<const float> after,
                    const proto::Pushed& decided) = 0;

  /// True if the policy, and not the shard's updater, keeps the optimizer's first moment.
  virtual bool keeps_moments() const noexcept { return false; }
  /// For a checkpoint: a single moment for all workers. Empty if the policy keeps none.
  virtual payload moment() const { return {}; }
  /// All workers continue from this moment, after this number of updates.
  virtual void restore_moment(std::span<const float> /*values*/, std::uint64_t /*updates*/) {}

  /// False if workers commit gradients without sending them.
  virtual bool needs_gradients() const noexcept { return true; }
  /// The weights, if workers change them themselves; otherwise null. The shard then makes no
  /// updates, it only counts versions. A reader gets the weights as they are when it reads.
  virtual std::shared_ptr<live_weights> live() const { return nullptr; }
  /// Before training: continues from these weights, after this number of samples and updates.
  virtual void restored(std::span<const float> /*weights*/, std::uint64_t /*samples*/,
                        std::uint64_t /*updates*/) {}

  /// Asynchronous protocols: a gradient was left out because it is not finite.
  virtual void left_out(const proto::Commit& /*x*/) {}

  /// The worker of this gradient has no other batch to train. It is the worker's last gradient so
  /// far.
  virtual void paused(const proto::Commit& /*x*/) {}

  struct admitted_readers {
    /// Step of the slowest worker.
    std::uint64_t step = 0;
    std::vector<std::uint32_t> workers = {};
  };
  /// Workers whose waiting pulls have become answerable since the last call. The shard notifies
  /// them.
  virtual admitted_readers admitted() { return {}; }

  /// No more gradients of this incarnation will come.
  virtual void forget(std::uint32_t /*worker*/, std::uint64_t /*incarnation*/) {}

  /// Advice for a worker's next gradient, if the protocol gives any.
  virtual std::optional<proto::Pacing> pacing() const { return std::nullopt; }
  /// On shard 0: the factor by which the other shards must multiply the learning rate. Nothing if
  /// the factor has hardly changed since this function last returned one.
  virtual std::optional<proto::Damping> new_damping() { return std::nullopt; }
  /// On other shards: takes the factor from shard 0. The caller has checked that it is above 0 and
  /// at most 1 (problem_of).
  virtual void set_damping(const proto::Damping& /*x*/) {}
  /// The state for a checkpoint, if the protocol paces training and this shard decides on the pace.
  virtual std::optional<proto::PacingState> pacing_state() const { return std::nullopt; }
  /// Before training: continues with the pacing state of a checkpoint. Returns false if its values
  /// are invalid.
  virtual bool restore_pacing(const proto::PacingState& /*x*/) { return true; }
};

} // namespace troupe
