#pragma once

#include "kernels/optimizers/optimizer.hpp"

#include <optional>

namespace troupe {

/// The effect of a push on the values of a server.
struct store_rule {
  /// If absent, the server adds the pushed values to its own. Otherwise, the pushed values are
  /// gradients, and the server makes an update with this rule. An update changes the optimizer's
  /// state only for its ranges. lamb and clip_norm are refused, because they need all elements at
  /// once.
  std::optional<optimizer> update;
  /// Learning rate, if there is an update.
  double rate = 0.01;
};

} // namespace troupe
