#pragma once

#include "actors/model/job_context.hpp"
#include "actors/parameter_server/range_pieces.hpp"
#include "messages/buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Updates a shard's range with one range_updater per piece. An update either takes all pieces at
/// once (apply()), or is computed one piece at a time (stage()). Both functions give the same bits.
/// Staged pieces change the optimizer's state only at publish().
///
/// All spans cover the whole range, unless stated otherwise.
class piecewise_updater {
public:
  /// There must be a single piece if the optimizer needs whole tensors (optimizer::by_tensor), or
  /// if `moment_apart` is true: the caller then keeps the first moment.
  /// @param on see range_updater
  piecewise_updater(const job_context& context, const range_pieces& pieces,
                    bool moment_apart = false, const updater_maker& on = {});

  /// See range_updater.
  void reserve_stage();

  const range_pieces& pieces() const noexcept { return pieces_; }

  /// See range_updater::apply.
  void apply(std::span<const float> weights, std::span<const float> gradient, std::uint64_t samples,
             std::span<float> updated, const range_updater::terms& how);

  /// Stages a piece. All pieces of an update must have the same `samples`.
  /// @param gradient the gradient of this piece
  void stage(std::size_t piece, std::span<const float> weights, std::span<const float> gradient,
             std::uint64_t samples, std::span<float> updated);

  bool staged(std::size_t piece) const { return staged_[piece]; }
  bool all_staged() const noexcept { return missing_ == 0; }

  /// Makes the staged update take effect. All pieces must be staged.
  void publish() noexcept;

  /// Drops the staged pieces.
  void discard() noexcept;

  /// See range_updater.
  void skip(std::uint64_t samples) noexcept;
  void count_update() noexcept;
  std::uint64_t samples() const noexcept { return updaters_.front().samples(); }

  /// A copy of one slot of the optimizer's state.
  payload state(std::size_t slot) const;

  /// See range_updater::restore.
  void restore(std::uint64_t samples, std::uint64_t updates) noexcept;
  void restore(std::size_t slot, std::span<const float> values);

private:
  /// The elements of a piece, relative to the beginning of the range.
  range at(std::size_t piece) const noexcept;
  void forget_staged() noexcept;

  range_pieces pieces_;
  std::vector<range_updater> updaters_;
  std::vector<bool> staged_;
  std::size_t missing_;
};

} // namespace troupe
