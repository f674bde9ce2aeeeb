#pragma once

#include "messages/proto/wire.pb.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// A hash of a gradient's identity whose sum over gradients tells, but for collisions, which of
/// them were applied.
std::uint64_t fingerprint(std::uint64_t incarnation, std::uint64_t sequence) noexcept;

/// What one shard has decided about each worker's gradients: every identity is decided once, and
/// repeating a push is safe. A worker sends its gradients in order, few at a time, so the highest
/// sequence and the last few answers suffice: memory per incarnation is constant.
class gradient_journal {
public:
  /// The answer given before, with `duplicate` set; nothing for a gradient that is new.
  std::optional<proto::Pushed> find(const proto::GradientId& id);

  /// Notes a decision (APPLIED, REJECTED_STALE or LOST), with the lease it belongs to.
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
  /// Gradients of one worker that may be on their way at once.
  static constexpr std::size_t window = 8;

  struct incarnation_state {
    proto::Decided decided;
    std::uint64_t highest = 0;
    std::array<proto::Pushed, window> answers;
    bool fenced = false;
  };

  using key = std::pair<std::uint32_t, std::uint64_t>;

  std::map<key, incarnation_state> incarnations_;
  std::uint64_t duplicates_ = 0;
};

} // namespace troupe
