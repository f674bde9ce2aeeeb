#pragma once

#include "actors/model/job_context.hpp"
#include "actors/parameter_server/staged_gradients.hpp"
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

/// A committed gradient of one worker. The payload is empty if the gradient has no samples or is
/// not finite.
struct contribution {
  proto::Commit header;
  shard_gradient gradient;
};

inline std::vector<proto::GradientId> ids_of(const auto& contributions) {
  std::vector<proto::GradientId> result;
  for (const contribution& x : contributions)
    result.push_back(x.header.id());
  return result;
}

/// An update of a shard's weights.
struct planned_update {
  /// Summed over `samples`; valid until `made()`.
  std::span<const float> gradient;
  /// 0 if the weights do not change.
  std::uint64_t samples = 0;
  range_updater::terms terms;
  /// False if the gradients only go into a buffer, and a later update changes the weights.
  bool complete = true;
  /// `gradient` and terms.addend are 0 in all other elements. Null if this is not known.
  std::shared_ptr<const range_list> touched = nullptr;
};

/// How a protocol treats the gradients that workers commit at a shard: which gradients it accepts,
/// which of them form an update, and when. This is a plain object, not an actor. It belongs to one
/// shard, and only this shard calls it.
///
/// The shard has checked that a gradient is new, has the right size and is finite.
class shard_policy {
public:
  virtual ~shard_policy() = default;

  /// True for synchronous protocols: workers wait for each other, and each update takes a gradient
  /// from every worker. A commit is answered at once, and a separate message announces the update.
  virtual bool in_step() const noexcept = 0;

  /// The reason to refuse this gradient; nothing if the gradient is accepted.
  /// @param version version of the shard's weights
  virtual std::optional<std::string> refusal(const proto::Commit& x,
                                             std::uint64_t version) const = 0;

  /// The outcome of a gradient that is too late for its update. Nothing if the gradient is in time.
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
  /// On shards other than 0: takes shard 0's choice. Exactly these gradients make the update of
  /// this step.
  virtual void choose(std::uint64_t /*step*/, std::vector<proto::GradientId> /*parts*/) {}
  /// A worker is lost. Called on shard 0. Removes the worker's gradient from the next update,
  /// unless other shards may already know that this gradient is part of the update. Returns true if
  /// a gradient was removed.
  virtual bool withdraw(std::uint32_t /*worker*/) { return false; }
  /// A worker is lost. Called on shards other than 0. The worker's gradients up to this sequence
  /// number become part of updates, if they have arrived. Newer ones are dropped.
  virtual void settle(std::uint32_t /*worker*/, std::uint64_t /*sequence*/) {}
  /// These workers have no data now, so updates need not wait for their gradients. Called on shard
  /// 0. If the protocol collects gradients in a buffer (protocol_traits::holds_back), called on all
  /// shards.
  virtual void set_idle(std::vector<std::uint32_t> /*workers*/) {}

  /// The gradients of the next update. Before the update is ready: the gradients that have arrived.
  /// Empty if the update has only gradients that were put into a buffer earlier.
  virtual std::span<const contribution> parts() const noexcept = 0;

  /// All gradients that have arrived and are not part of an update yet. parts() may be only the
  /// first of them.
  virtual std::vector<proto::GradientId> undecided() const { return ids_of(parts()); }

  /// The next update, once it is ready. `weights` are the weights before the update, `version` is
  /// their version.
  virtual planned_update plan(std::span<const float> weights, std::uint64_t version) = 0;

  /// Records that the update was made. From now on, `parts()` returns the gradients of the next
  /// update.
  /// @param decided the decision about the update's first gradient; unset if the update has no
  /// gradient
  virtual void made(std::span<const float> before, std::span<const float> after,
                    const proto::Pushed& decided) = 0;

  /// True if the policy, and not the shard's updater, keeps the optimizer's first moment.
  virtual bool keeps_moments() const noexcept { return false; }
  /// For a checkpoint after this number of updates: the mean of all workers' first moments. Empty if
  /// the policy keeps no moments.
  virtual payload moment(std::uint64_t /*updates*/) const { return {}; }
  /// Before training: all workers continue from this first moment, to which `updates` updates have
  /// contributed.
  virtual void restore_moment(std::span<const float> /*values*/, std::uint64_t /*updates*/) {}

  /// False if workers commit gradients without sending them.
  virtual bool needs_gradients() const noexcept { return true; }
  /// The weights, if workers change them directly; otherwise null. The shard then makes no updates
  /// and only counts versions. A reader gets the weights as they are when it reads.
  virtual std::shared_ptr<live_weights> live() const { return nullptr; }
  /// Before training: starts from these weights, which `samples` samples and `updates` updates have
  /// produced in earlier runs.
  virtual void restored(std::span<const float> /*weights*/, std::uint64_t /*samples*/,
                        std::uint64_t /*updates*/) {}

  /// In asynchronous protocols: a gradient was left out because it is not finite.
  virtual void left_out(const proto::Commit& /*x*/) {}

  /// This gradient is the newest one of its worker, and the worker has no other batch to train.
  virtual void paused(const proto::Commit& /*x*/) {}

  struct admitted_readers {
    /// Step of the slowest worker.
    std::uint64_t step = 0;
    std::vector<std::uint32_t> workers = {};
  };
  /// The workers whose pulls had to wait, and that need not wait any more. Each call returns only
  /// the workers that have become free since the call before. The shard notifies them.
  virtual admitted_readers admitted() { return {}; }

  /// No more gradients will come from this incarnation (one start of a worker).
  virtual void forget(std::uint32_t /*worker*/, std::uint64_t /*incarnation*/) {}

  /// Statistics that the answer to a commit carries, for the worker's next gradient. Nothing if the
  /// protocol has none.
  virtual std::optional<proto::Pacing> pacing() const { return std::nullopt; }
  /// On shard 0: the factor by which the other shards must multiply the learning rate. Nothing if
  /// the factor has hardly changed since the last call that returned one.
  virtual std::optional<proto::Damping> new_damping() { return std::nullopt; }
  /// On other shards: takes the factor from shard 0. The caller has checked that it is above 0 and
  /// at most 1 (problem_of).
  virtual void set_damping(const proto::Damping& /*x*/) {}
  /// For a checkpoint: the state from which this shard adapts the learning rate (async_pacing).
  /// Nothing if it does not adapt the rate.
  virtual std::optional<proto::PacingState> pacing_state() const { return std::nullopt; }
  /// Before training: continues with the pacing state of a checkpoint. Returns false if its values
  /// are invalid.
  virtual bool restore_pacing(const proto::PacingState& /*x*/) { return true; }
};

} // namespace troupe
