#include "actors/protocols/async_ps/slope_probe.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr std::uint64_t block = 16;
constexpr std::uint64_t most_blocks = 4096;

} // namespace

slope_probe::slope_probe(std::uint64_t parameters)
  : stride_(block * std::max<std::uint64_t>(1, parameters / block / most_blocks)) {
  const auto blocks = (parameters + stride_ - 1) / stride_;
  weights_.resize(blocks * block);
  gradient_.resize(blocks * block);
}

// Values beyond the end of the vector stay 0.
void slope_probe::copy_sample(std::uint64_t begin, std::span<const float> values,
                              std::vector<float>& out) const {
  const auto end = begin + values.size();
  for (auto k = begin / stride_; k * stride_ < end; ++k) {
    const auto from = std::max(k * stride_, begin);
    const auto to = std::min(k * stride_ + block, end);
    for (auto i = from; i < to; ++i)
      out[k * block + (i - k * stride_)] = values[i - begin];
  }
}

void slope_probe::read(std::span<const weight_range> weights) {
  for (const auto& x : weights)
    copy_sample(x.begin, x.data.as_floats(), weights_);
}

std::optional<proto::Slopes> slope_probe::see(std::span<const float> gradient,
                                              std::uint64_t samples) {
  copy_sample(0, gradient, gradient_);
  for (auto& x : gradient_)
    x /= static_cast<float>(samples);
  std::optional<proto::Slopes> result;
  if (!last_gradient_.empty()) {
    double before = 0;
    double after = 0;
    double way = 0;
    double last_square = 0;
    double square = 0;
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      const double moved = double{weights_[i]} - double{last_weights_[i]};
      const double last = last_gradient_[i];
      const double now = gradient_[i];
      before += last * moved;
      after += now * moved;
      way += moved * moved;
      last_square += last * last;
      square += now * now;
    }
    const double scale = std::sqrt(std::max(last_square, square) * way);
    if (scale > 0 && std::isfinite(scale)) {
      result.emplace();
      result->set_before(before / scale);
      result->set_after(after / scale);
    }
  }
  last_weights_ = weights_;
  last_gradient_ = gradient_;
  return result;
}

} // namespace troupe
