#pragma once

#include "messages/proto/wire.pb.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// A hash of a gradient's identity whose sum over gradients tells (except for collisions) which of
/// them were applied.
std::uint64_t fingerprint(std::uint64_t incarnation, std::uint64_t sequence) noexcept;

/// What one shard has decided about each worker's gradients: every identity is decided once, and
/// repeating a commit is safe. A worker has few gradients on their way at a time, so memory per
/// incarnation is constant: a mark below which all is over, a bitmap of what was decided above it,
/// and the last few answers.
class gradient_journal {
public:
  /// The answer given before, with `duplicate` set; nothing for a gradient that is new.
  std::optional<proto::Pushed> find(const proto::GradientId& id);

  /// Notes a decision (APPLIED, REJECTED_STALE, LATE_DROPPED, LATE_REQUEUED, QUARANTINED or LOST),
  /// with the lease it belongs to.
  void record(const proto::GradientId& id, const proto::Pushed& answer, std::uint64_t lease,
              std::uint64_t batch);

  /// No gradient of this incarnation is to be applied from now on.
  void fence(std::uint32_t worker, std::uint64_t incarnation);
  bool fenced(const proto::GradientId& id) const;

  /// What was decided about an incarnation; all zero where nothing was.
  proto::Decided decided(std::uint32_t worker, std::uint64_t incarnation) const;

  /// All incarnations, in order of worker and incarnation.
  std::vector<proto::Decided> decided() const;

  std::uint64_t duplicates() const noexcept { return duplicates_; }

private:
  /// Answers that are remembered.
  static constexpr std::size_t window = 8;
  /// A gradient so far behind the newest one that was decided is over.
  static constexpr std::uint64_t reach = 64;

  struct incarnation_state {
    proto::Decided decided;
    /// All up to this sequence are over; bit i tells that mark + 1 + i was decided.
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
