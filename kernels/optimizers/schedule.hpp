#pragma once

#include <string>
#include <variant>
#include <vector>

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

/// One cycle over the epochs of the job (Smith and Topin, 2018; the constants are those of
/// PyTorch's OneCycleLR). The rate rises from base / start_divisor to base over the first `rising`
/// of the job, then falls to base / start_divisor / end_divisor. Both parts follow half a cosine.
struct one_cycle_rate {
  double rising = 0.3;
  double start_divisor = 25;
  double end_divisor = 1e4;
  /// Epochs of the job.
  double epochs = 1;
  bool operator==(const one_cycle_rate&) const = default;
};

/// A learning rate as a function of progress. Progress is counted in epochs (samples trained /
/// samples in the training set), so that the rate does not depend on the number of workers.
struct learning_rate {
  double base = 0.01;
  /// During the first warmup_epochs epochs (fractions are allowed), the scheduled value is
  /// multiplied by epoch / warmup_epochs.
  double warmup_epochs = 0;
  std::variant<constant_rate, step_rate, exponential_rate, cosine_rate, one_cycle_rate> schedule;

  /// The rate after `epoch` epochs; epoch >= 0. It is 0 at the start of a warm-up and at the end of
  /// a cosine to 0; steps use the rate at their middle.
  double at(double epoch) const;
  bool operator==(const learning_rate&) const = default;
};

/// A number that makes no sense, such as a negative one.
struct rate_problem {
  /// The field of a job: "learning_rate.base".
  std::string field;
  /// "expected a finite number, more than 0, got -1".
  std::string text;
};
/// All numbers that make no sense: the one list of bounds, also for job files.
std::vector<rate_problem> problems_of(const learning_rate& rate);
/// Throws input_error with the first problem.
void check(const learning_rate& rate);

} // namespace troupe
