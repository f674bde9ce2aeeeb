#pragma once

#include "messages/proto/wire.pb.h"
#include "messages/synchronizer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Compares a worker's successive gradients along the path that its weights took between them: see
/// proto::Slopes. Uses a sample of about 32,768 parameters: blocks of 64, spread evenly over the
/// parameter vector.
class slope_probe {
public:
  explicit slope_probe(std::uint64_t parameters);

  /// The next gradient is computed from these weights.
  void read(std::span<const weight_range> weights);

  /// Takes the gradient, summed over this many samples. Returns nothing for the first gradient, or
  /// if the weights have not moved.
  std::optional<proto::Slopes> see(std::span<const float> gradient, std::uint64_t samples);

private:
  void copy_sample(std::uint64_t begin, std::span<const float> values,
                   std::vector<float>& out) const;

  /// Distance between the beginnings of two blocks.
  std::uint64_t stride_;
  /// Samples of the weights read last, and of the weights of the last gradient.
  std::vector<float> weights_;
  std::vector<float> last_weights_;
  std::vector<float> gradient_;
  /// The last gradient, and its number of samples; 0: none yet.
  std::vector<float> last_gradient_;
  std::uint64_t last_samples_ = 0;
};

} // namespace troupe
