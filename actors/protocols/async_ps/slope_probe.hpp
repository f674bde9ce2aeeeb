#pragma once

#include "messages/proto/wire.pb.h"
#include "messages/synchronizer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Compares a worker's successive gradients along the way that its weights have gone between them:
/// see proto::Slopes. Looks at a sample of the parameters, about 32,768 of them: blocks of 64,
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
  std::vector<float> gradient_;
  /// The last gradient, and of how many samples it was; 0: there was none.
  std::vector<float> last_gradient_;
  std::uint64_t last_samples_ = 0;
};

} // namespace troupe
