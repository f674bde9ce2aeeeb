#pragma once

#include "messages/proto/wire.pb.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// A hash of a gradient's identity. Each shard adds up the hashes of the gradients that it applied.
/// If two shards have different sums, they applied different gradients.
std::uint64_t fingerprint(std::uint64_t incarnation, std::uint64_t sequence) noexcept;

/// Records what a shard decided about each gradient, for example that it was applied or rejected.
/// Each gradient is decided once. If a worker repeats a commit, it gets the recorded answer.
///
/// The journal needs constant memory per incarnation (one start of a worker), because a worker has
/// few gradients in transit at a time. All gradients up to a mark are decided. A bitmap says which
/// of the next gradients are decided. Only the last few answers are stored.
class gradient_journal {
public:
  /// The answer that this gradient got earlier, with `duplicate` set. Nothing if the gradient is
  /// new.
  std::optional<proto::Pushed> find(const proto::GradientId& id);

  /// Records a decision (APPLIED, REJECTED_STALE, LATE_DROPPED, LATE_REQUEUED, QUARANTINED or LOST)
  /// about a gradient that was computed from this batch of this lease.
  /// @param scale the worker's loss scale after the gradient; null if the worker has no loss scale
  void record(const proto::GradientId& id, const proto::Pushed& answer, std::uint64_t lease,
              std::uint64_t batch, const proto::LossScaleState* scale = nullptr);

  /// Records the decision about the gradient of this commit.
  void record(const proto::Commit& x, const proto::Pushed& answer) {
    record(x.id(), answer, x.lease(), x.batch(), x.has_loss_scale() ? &x.loss_scale() : nullptr);
  }

  /// Fences off an incarnation: no further gradient of it may be applied.
  void fence(std::uint32_t worker, std::uint64_t incarnation);
  bool fenced(const proto::GradientId& id) const;

  /// The decisions about an incarnation; all zero if there are none.
  proto::Decided decided(std::uint32_t worker, std::uint64_t incarnation) const;

  /// All incarnations, in order of worker and incarnation.
  std::vector<proto::Decided> decided() const;

  /// Number of repeated gradients. Repetitions of a rejected gradient do not count.
  std::uint64_t duplicates() const noexcept { return duplicates_; }

private:
  /// Number of answers to remember per incarnation.
  static constexpr std::size_t window = 8;
  /// A gradient that is this number of gradients older than the newest decided one also counts as
  /// decided.
  static constexpr std::uint64_t reach = 64;

  struct incarnation_state {
    proto::Decided decided;
    /// All gradients up to this sequence number are decided. If bit i of `bits` is set, gradient
    /// mark + 1 + i is decided.
    std::uint64_t mark = 0;
    std::uint64_t bits = 0;
    std::array<std::pair<std::uint64_t, proto::Pushed>, window> answers;
    bool fenced = false;

    bool over(std::uint64_t sequence) const noexcept;
    void note(std::uint64_t sequence) noexcept;
  };

  using key = std::pair<std::uint32_t, std::uint64_t>;

  std::map<key, incarnation_state> incarnations_;
  std::uint64_t duplicates_ = 0;
};

} // namespace troupe
