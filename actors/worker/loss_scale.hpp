#pragma once

#include "kernels/graph/layout.hpp"
#include "messages/loss_scale_state.hpp"

#include <cstdint>
#include <span>

namespace troupe {

/// Chooses the factor by which the loss is multiplied with float16, so that small gradients do not
/// become 0 (loss scaling; Micikevicius et al., 2018, arXiv 1710.03740, section 3.2). The factor
/// changes as in PyTorch's GradScaler, with one difference: if the gradient of a batch overflows,
/// the batch is computed again with half the scale. GradScaler leaves the batch out.
///
/// All scales are powers of two. Multiplying and dividing by a scale therefore changes no bits of
/// the result, except for numbers that float16 cannot represent.
class loss_scale {
public:
  /// The limits of the scale.
  static constexpr float least = 1;
  static constexpr float most = 0x1p60F;

  /// @param initial a power of two from `least` to `most`
  /// @param growth_interval number of batches in a row without overflow after which the scale
  /// doubles; if 0, it never doubles
  loss_scale(float initial, std::uint32_t growth_interval)
    : value_(initial), growth_interval_(growth_interval) {}

  /// Continues from a state of an earlier run.
  /// @param from the state; it must be valid
  loss_scale(const loss_scale_state& from, std::uint32_t growth_interval)
    : value_(static_cast<float>(from.value)), growth_interval_(growth_interval),
      good_(from.batches) {}

  /// The state after the newest batch. Call it between batches.
  loss_scale_state state() const noexcept { return {static_cast<std::uint64_t>(value_), good_}; }

  /// The factor by which the loss is multiplied.
  float value() const noexcept { return value_; }

  /// Records that the gradient of a batch was finite.
  void succeeded() noexcept;

  /// Records that the gradient of a batch was not finite.
  /// @return true if the batch should be computed again; the scale is then smaller. False if a
  /// smaller scale does not help; the scale is then the same as before the batch.
  bool overflowed() noexcept;

private:
  float value_;
  std::uint32_t growth_interval_;
  /// Number of batches without overflow since the scale last changed.
  std::uint32_t good_ = 0;
  /// How often the scale was halved for the current batch.
  int halvings_ = 0;
};

/// True if all gradients of trainable parameters are finite.
/// @param gradient a flat vector: the gradients of all parameters
bool is_finite(const layout& parameters, std::span<const float> gradient);

/// Divides the gradients of trainable parameters by a scale.
/// @param gradient a flat vector: the gradients of all parameters
void remove_scale(const layout& parameters, float scale, std::span<float> gradient);

} // namespace troupe
