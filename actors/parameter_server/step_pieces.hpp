#pragma once

#include "actors/parameter_server/range_pieces.hpp"
#include "messages/proto/wire.pb.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Adds up the gradients of one synchronous step at a shard, one per rank, while they arrive in
/// pieces. A piece can be added up as soon as all ranks have sent it. The gradients need not be
/// committed yet. The sum is provisional: it becomes valid if all commits match the pieces that
/// were sent.
///
/// Pieces are added in order of rank, so the sum has the same bits as that of step_aggregator.
class step_pieces {
public:
  step_pieces(const range_pieces& pieces, std::size_t ranks);

  const range_pieces& pieces() const noexcept { return pieces_; }

  /// Takes a piece of a rank's gradient over `samples` > 0. Returns the whole gradient if this was
  /// its last piece, otherwise nothing.
  payload add(std::size_t rank, const proto::GradientId& id, std::uint64_t samples,
              std::size_t piece, std::span<const float> values);

  /// Takes a rank's whole gradient when it is committed. The payload is empty if the gradient has
  /// zero samples or is not finite.
  void settle(std::size_t rank, const proto::GradientId& id, std::uint64_t samples,
              const payload& gradient);

  /// True if this rank has sent a piece in this step.
  bool sends_pieces(std::size_t rank) const { return ranks_[rank].sends_pieces; }
  /// True if any rank has sent a piece in this step.
  bool under_way() const;

  /// True if this piece has arrived from all ranks, and all commits so far match the pieces.
  bool ready(std::size_t piece) const;

  /// The sum of a piece that is ready. Valid until the next call of a member function.
  std::span<const float> sum(std::size_t piece);

  /// Number of samples of all ranks. Known once a piece is ready.
  std::uint64_t samples() const noexcept;

  /// True if all gradients are committed, and each commit matches the pieces that were sent.
  bool settled() const;

  /// Clears everything for the next step.
  void clear();

private:
  struct rank_state {
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
    std::uint64_t samples = 0;
    bool sends_pieces = false;
    bool settled = false;
    piece_assembly gradient;
  };

  rank_state& of(std::size_t rank, const proto::GradientId& id, std::uint64_t samples);

  range_pieces pieces_;
  std::vector<rank_state> ranks_;
  /// True if a commit did not match the pieces that were sent.
  bool contradicted_ = false;
  std::vector<float> sum_;
};

} // namespace troupe
