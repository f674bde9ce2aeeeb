#pragma once

#include <variant>

namespace troupe {

/// The rate stays at base.
struct constant_rate {
  bool operator==(const constant_rate&) const = default;
};

/// base * factor^floor(epoch / every_epochs).
struct step_rate {
  double every_epochs = 1;
  double factor = 0.1;
  bool operator==(const step_rate&) const = default;
};

/// base * factor^epoch.
struct exponential_rate {
  double factor = 0.9;
  bool operator==(const exponential_rate&) const = default;
};

/// final + (base - final) * (1 + cos(pi * epoch / epochs)) / 2, `final` after the last epoch
/// (Loshchilov and Hutter, 2017).
struct cosine_rate {
  double final_rate = 0;
  /// Epochs of the job.
  double epochs = 1;
  bool operator==(const cosine_rate&) const = default;
};

/// One cycle over the epochs of the job (Smith and Topin, 2018; the constants of PyTorch's
/// OneCycleLR): from base / start_divisor up to base over the first `rising` of the job, then down
/// to base / start_divisor / end_divisor, both along half a cosine.
struct one_cycle_rate {
  double rising = 0.3;
  double start_divisor = 25;
  double end_divisor = 1e4;
  /// Epochs of the job.
  double epochs = 1;
  bool operator==(const one_cycle_rate&) const = default;
};

/// A learning rate as a function of progress, which is counted in epochs (samples trained / samples
/// in the training set) so that it does not depend on the number of workers.
struct learning_rate {
  double base = 0.01;
  /// During the first warmup_epochs epochs (fractions are allowed), the scheduled value is
  /// multiplied by epoch / warmup_epochs.
  double warmup_epochs = 0;
  std::variant<constant_rate, step_rate, exponential_rate, cosine_rate, one_cycle_rate> schedule;

  /// The rate after `epoch` epochs; epoch >= 0. 0 where a warm-up begins, and where a cosine ends
  /// at 0: steps take it at their middle.
  double at(double epoch) const;
  bool operator==(const learning_rate&) const = default;
};

/// Throws input_error, naming the field, when a value makes no sense (negative, not finite,
/// every_epochs <= 0, ...).
void check(const learning_rate& rate);

} // namespace troupe
