#include "actors/worker/loss_scale.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

void loss_scale::succeeded() noexcept {
  halvings_ = 0;
  if (growth_interval_ == 0 || ++good_ < growth_interval_)
    return;
  value_ = std::min(value_ * 2, most);
  good_ = 0;
}

bool loss_scale::overflowed() noexcept {
  good_ = 0;
  if (value_ <= least) {
    value_ = std::ldexp(value_, std::exchange(halvings_, 0));
    return false;
  }
  value_ /= 2;
  ++halvings_;
  return true;
}

bool is_finite(const layout& parameters, std::span<const float> gradient) {
  for (const auto& x : parameters.entries()) {
    const auto part = gradient.subspan(x.offset, x.size);
    if (x.kind == parameter_kind::trainable
        && !std::ranges::all_of(part, [](float y) { return std::isfinite(y); }))
      return false;
  }
  return true;
}

void remove_scale(const layout& parameters, float scale, std::span<float> gradient) {
  const float factor = 1 / scale; // exact, because the scale is a power of two
  for (const auto& x : parameters.entries())
    if (x.kind == parameter_kind::trainable)
      for (float& y : gradient.subspan(x.offset, x.size))
        y *= factor;
}

} // namespace troupe
