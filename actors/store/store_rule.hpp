#pragma once

#include "kernels/optimizers/optimizer.hpp"

#include <optional>

namespace troupe {

/// What a server does with pushed values.
struct store_rule {
  /// Absent: it adds them. Otherwise they are gradients, and the server makes the update. The
  /// update of some ranges changes the state of these ranges alone. Refused: lamb and clip_norm,
  /// which need all elements at once.
  std::optional<optimizer> update;
  /// Learning rate, if there is an update.
  double rate = 0.01;
};

} // namespace troupe
