#pragma once

#include "messages/proto/wire.pb.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// A hash of a gradient's identity. The sum of these hashes shows which gradients were applied
/// (except for collisions).
std::uint64_t fingerprint(std::uint64_t incarnation, std::uint64_t sequence) noexcept;

/// A shard's decisions about each worker's gradients. Every gradient is decided once, and repeating
/// a commit does no harm. A worker has few gradients in transit at a time, so the journal needs
/// constant memory per incarnation (one start of a worker). This memory holds a mark, a bitmap of
/// the decisions above the mark, and the last few answers. All gradients up to the mark are
/// decided.
class gradient_journal {
public:
  /// The earlier answer with `duplicate` set; nothing if the gradient is new.
  std::optional<proto::Pushed> find(const proto::GradientId& id);

  /// Records a decision (APPLIED, REJECTED_STALE, LATE_DROPPED, LATE_REQUEUED, QUARANTINED or LOST)
  /// and the gradient's lease (the samples that its worker was given to train).
  /// @param scale the worker's loss scale after the gradient; null if it has none
  void record(const proto::GradientId& id, const proto::Pushed& answer, std::uint64_t lease,
              std::uint64_t batch, const proto::LossScaleState* scale = nullptr);

  /// Records the decision about the gradient of this commit.
  void record(const proto::Commit& x, const proto::Pushed& answer) {
    record(x.id(), answer, x.lease(), x.batch(), x.has_loss_scale() ? &x.loss_scale() : nullptr);
  }

  /// From now on, no gradient of this incarnation may be applied.
  void fence(std::uint32_t worker, std::uint64_t incarnation);
  bool fenced(const proto::GradientId& id) const;

  /// The decisions about an incarnation; all zero if there are none.
  proto::Decided decided(std::uint32_t worker, std::uint64_t incarnation) const;

  /// All incarnations, in order of worker and incarnation.
  std::vector<proto::Decided> decided() const;

  std::uint64_t duplicates() const noexcept { return duplicates_; }

private:
  /// Number of answers to remember.
  static constexpr std::size_t window = 8;
  /// A gradient counts as decided if it is this far behind the newest decided gradient.
  static constexpr std::uint64_t reach = 64;

  struct incarnation_state {
    proto::Decided decided;
    /// All gradients up to this sequence are decided. Bit i means that mark + 1 + i is decided.
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
