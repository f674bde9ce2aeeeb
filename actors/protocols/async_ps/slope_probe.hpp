#pragma once

#include "messages/proto/wire.pb.h"
#include "messages/synchronizer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Compares a worker's successive gradients along the way that its weights have gone between them:
/// see proto::Slopes. Looks at a sample of the parameters, 65,536 of them at most: blocks of 16,
/// spread evenly over the parameter vector.
class slope_probe {
public:
  explicit slope_probe(std::uint64_t parameters);

  /// The next gradient is computed from these weights.
  void read(std::span<const weight_range> weights);

  /// The gradient, summed over so many samples. Nothing where it is the first one, or where the
  /// weights have not moved.
  std::optional<proto::Slopes> see(std::span<const float> gradient, std::uint64_t samples);

private:
  void copy_sample(std::uint64_t begin, std::span<const float> values,
                   std::vector<float>& out) const;

  /// From one block to the next.
  std::uint64_t stride_;
  /// Samples of the weights that were read last, and of what the last gradient was computed from.
  std::vector<float> weights_;
  std::vector<float> last_weights_;
  /// Of the last gradient, its mean over the samples.
  std::vector<float> last_gradient_;
  std::vector<float> gradient_;
};

} // namespace troupe
