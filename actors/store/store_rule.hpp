#pragma once

#include "kernels/optimizers/optimizer.hpp"

#include <optional>

namespace troupe {

/// How pushed values change a server's values.
struct store_rule {
  /// If absent, the server adds the pushed values to its own values. If present, the pushed values
  /// are gradients, and the server makes an update with this optimizer. An update changes the
  /// optimizer's state only for the ranges of the push. lamb and clip_norm are refused, because
  /// they need all elements at once.
  std::optional<optimizer> update;
  /// The learning rate of `update`.
  double rate = 0.01;
};

} // namespace troupe
