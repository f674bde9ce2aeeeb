#pragma once

#include "actors/model/job_context.hpp"
#include "messages/buffer.hpp"
#include "messages/proto/wire.pb.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A committed gradient of one worker. The payload is empty where it has no samples, or is
/// quarantined.
struct contribution {
  proto::Commit header;
  payload gradient;
};

/// An update of a shard's weights.
struct planned_update {
  /// Summed over `samples`; valid until `made()`.
  std::span<const float> gradient;
  /// 0: the weights stay as they are.
  std::uint64_t samples = 0;
  range_updater::terms terms;
};

/// What a protocol makes of the gradients that workers commit at a shard: which of them it takes,
/// which make an update together, and when. Plain state, of one shard, called by it alone.
///
/// The shard has checked that a gradient is new, has the right size and is finite.
class shard_policy {
public:
  virtual ~shard_policy() = default;

  /// Workers wait for each other: an update takes a gradient of each. They are told of it by a
  /// message of its own, and a commit is acknowledged at once.
  virtual bool in_step() const noexcept = 0;

  /// Why this gradient cannot be taken, where it cannot.
  /// @param version of the shard's weights
  virtual std::optional<std::string> refusal(const proto::Commit& x,
                                             std::uint64_t version) const = 0;

  /// What becomes of this gradient if the update that it belongs to is made without it. Nothing: it
  /// is in time.
  virtual std::optional<proto::Outcome> late(const proto::Commit& /*x*/,
                                             std::uint64_t /*version*/) const {
    return std::nullopt;
  }

  /// Takes a gradient. False if this one is here already.
  virtual bool take(contribution x) = 0;

  /// An update can be made.
  virtual bool ready() const noexcept = 0;

  /// Shard 0 chooses the gradients of a step, and tells the others which (choose()).
  virtual bool chooses() const noexcept { return false; }
  /// In shards other than 0: these gradients, and no others, make the update of this step.
  virtual void choose(std::uint64_t /*step*/, std::vector<proto::GradientId> /*parts*/) {}
  /// In shard 0: no gradients of these workers are to come for now.
  virtual void set_idle(std::vector<std::uint32_t> /*workers*/) {}

  /// The gradients of the next update; of those that are here, where it is not ready.
  virtual std::span<const contribution> parts() const noexcept = 0;

  /// The next update, once ready; starts from these weights of that version.
  virtual planned_update plan(std::span<const float> weights, std::uint64_t version) = 0;

  /// The update was made: `parts()` are those of the next one from now on.
  /// @param decided what became of its first part
  virtual void made(std::span<const float> before, std::span<const float> after,
                    const proto::Pushed& decided) = 0;

  /// The optimizer's first moment is kept here, not by the shard's updater.
  virtual bool keeps_moments() const noexcept { return false; }
  /// For a checkpoint: one moment, for all workers. Empty where none is kept.
  virtual payload moment() const { return {}; }
  /// All workers go on from this moment, after so many updates.
  virtual void restore_moment(std::span<const float> /*values*/, std::uint64_t /*updates*/) {}

  /// False: workers commit gradients without sending them.
  virtual bool needs_gradients() const noexcept { return true; }
  /// Makes the next version itself, without an update by the shard. False: it does not.
  virtual bool fill(std::span<float> /*next*/) { return false; }
  /// Before training: goes on from these weights, after so many samples and updates.
  virtual void restored(std::span<const float> /*weights*/, std::uint64_t /*samples*/,
                        std::uint64_t /*updates*/) {}

  /// Not in step: a gradient was left out, because it is not finite.
  virtual void left_out(const proto::Commit& /*x*/) {}

  /// The worker whose last gradient this was has no other batch to train.
  virtual void paused(const proto::Commit& /*x*/) {}

  struct admitted_readers {
    /// Of the slowest worker.
    std::uint64_t step = 0;
    std::vector<std::uint32_t> workers = {};
  };
  /// Workers whose pulls had to wait and can be answered now, since the last call: they are told.
  virtual admitted_readers admitted() { return {}; }

  /// No gradient of this incarnation comes any more.
  virtual void forget(std::uint32_t /*worker*/, std::uint64_t /*incarnation*/) {}

  /// For the next gradient of a worker, where the protocol tells it anything.
  virtual std::optional<proto::Pacing> pacing() const { return std::nullopt; }
  /// For a checkpoint, where the protocol paces training and this shard decides on the pace.
  virtual std::optional<proto::PacingState> pacing_state() const { return std::nullopt; }
  /// Before training: goes on at the pace of a checkpoint. False: its values make no sense.
  virtual bool restore_pacing(const proto::PacingState& /*x*/) { return true; }
};

} // namespace troupe
