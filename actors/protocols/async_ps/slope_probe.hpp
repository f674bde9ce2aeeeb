#pragma once

#include "messages/proto/wire.pb.h"
#include "messages/synchronizer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Measures the slopes of the loss at the two ends of the path that the weights took between two
/// successive gradients of a worker: see proto::Slopes. It uses only about 32,768 of the
/// parameters: blocks of 64, spread evenly over the parameter vector.
class slope_probe {
public:
  explicit slope_probe(std::uint64_t parameters);

  /// Takes the weights from which the next gradient is computed.
  void read(std::span<const weight_range> weights);

  /// Takes a gradient, summed over `samples` samples, and returns the slopes since the last
  /// gradient. Returns nothing for the first gradient, or if the weights have not moved.
  std::optional<proto::Slopes> see(std::span<const float> gradient, std::uint64_t samples);

private:
  void copy_sample(std::uint64_t begin, std::span<const float> values,
                   std::vector<float>& out) const;

  /// Distance between the starts of two blocks.
  std::uint64_t stride_;
  /// The sampled parameters of the newest weights, and of the weights from which the last gradient
  /// was computed.
  std::vector<float> weights_;
  std::vector<float> last_weights_;
  std::vector<float> gradient_;
  /// The sampled parameters of the last gradient.
  std::vector<float> last_gradient_;
  /// Number of training samples of the last gradient; 0 before the first gradient.
  std::uint64_t last_samples_ = 0;
};

} // namespace troupe
