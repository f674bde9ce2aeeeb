#include "actors/protocols/async_ps/slope_probe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace troupe {

namespace {

constexpr std::uint64_t block_elements = 64;
constexpr std::size_t lane_count = 16;
constexpr std::uint64_t most_blocks = 512;

/// Several partial sums, so that the compiler can vectorize the loop.
using lanes = std::array<float, lane_count>;

double sum(const lanes& x) {
  return std::accumulate(x.begin(), x.end(), 0.0);
}

} // namespace

slope_probe::slope_probe(std::uint64_t parameters)
  : stride_(block_elements
            * std::max<std::uint64_t>(1, parameters / block_elements / most_blocks)) {
  const auto blocks = (parameters + stride_ - 1) / stride_;
  for (auto* x : {&weights_, &last_weights_, &gradient_, &last_gradient_})
    x->resize(blocks * block_elements);
}

// Copies the sampled blocks that lie in `values` to `out`. In the last block, elements beyond the
// end of the parameter vector stay 0.
void slope_probe::copy_sample(std::uint64_t begin, std::span<const float> values,
                              std::vector<float>& out) const {
  const auto end = begin + values.size();
  for (auto k = begin / stride_; k * stride_ < end; ++k) {
    const auto from = std::max(k * stride_, begin);
    const auto to = std::min(k * stride_ + block_elements, end);
    if (from < to)
      std::ranges::copy(values.subspan(from - begin, to - from),
                        out.begin()
                          + static_cast<std::ptrdiff_t>(k * block_elements + from % stride_));
  }
}

void slope_probe::read(std::span<const weight_range> weights) {
  for (const auto& x : weights)
    copy_sample(x.begin, x.data.as_floats(), weights_);
}

std::optional<proto::Slopes> slope_probe::see(std::span<const float> gradient,
                                              std::uint64_t samples) {
  copy_sample(0, gradient, gradient_);
  std::optional<proto::Slopes> result;
  if (last_samples_ > 0) {
    lanes before{};
    lanes after{};
    lanes way{};
    lanes last_square{};
    lanes square{};
    for (std::size_t i = 0; i < gradient_.size(); i += lane_count)
      for (std::size_t j = 0; j < lane_count; ++j) {
        const float moved = weights_[i + j] - last_weights_[i + j];
        const float last = last_gradient_[i + j];
        const float now = gradient_[i + j];
        before[j] += last * moved;
        after[j] += now * moved;
        way[j] += moved * moved;
        last_square[j] += last * last;
        square[j] += now * now;
      }
    // Gradients are sums over samples, but the comparison uses their means.
    const double last_share = 1 / static_cast<double>(last_samples_);
    const double share = 1 / static_cast<double>(samples);
    const double longer =
      std::max(std::sqrt(sum(last_square)) * last_share, std::sqrt(sum(square)) * share);
    const double scale = longer * std::sqrt(sum(way));
    if (scale > 0 && std::isfinite(scale)) {
      result.emplace();
      result->set_before(sum(before) * last_share / scale);
      result->set_after(sum(after) * share / scale);
    }
  }
  last_weights_.swap(weights_); // The next weights replace all elements.
  last_gradient_.swap(gradient_);
  last_samples_ = samples;
  return result;
}

} // namespace troupe
