#pragma once

#include <string>
#include <variant>
#include <vector>

namespace troupe {

/// A constant rate: `base` (learning_rate::base).
struct constant_rate {
  bool operator==(const constant_rate&) const = default;
};

/// A rate that falls in steps: base * factor^floor(epoch / every_epochs).
struct step_rate {
  double every_epochs = 1;
  double factor = 0.1;
  bool operator==(const step_rate&) const = default;
};

/// A rate that falls exponentially: base * factor^epoch.
struct exponential_rate {
  double factor = 0.9;
  bool operator==(const exponential_rate&) const = default;
};

/// A rate that falls along half a cosine (Loshchilov and Hutter, 2017): final_rate + (base -
/// final_rate) * (1 + cos(pi * epoch / epochs)) / 2. After the last epoch, it is final_rate.
struct cosine_rate {
  double final_rate = 0;
  /// Number of epochs of the job.
  double epochs = 1;
  bool operator==(const cosine_rate&) const = default;
};

/// One cycle over the epochs of the job (Smith and Topin, 2018; the default constants are those of
/// PyTorch's OneCycleLR). In the first part of the job, the rate rises from base / start_divisor to
/// base. `rising` is the fraction of the epochs in this part. Then the rate falls to base /
/// start_divisor / end_divisor. Rise and fall both follow half a cosine.
struct one_cycle_rate {
  double rising = 0.3;
  double start_divisor = 25;
  double end_divisor = 1e4;
  /// Number of epochs of the job.
  double epochs = 1;
  bool operator==(const one_cycle_rate&) const = default;
};

/// A learning rate as a function of progress. Progress is counted in epochs (samples trained /
/// samples in the training set), so the rate does not depend on the number of workers.
struct learning_rate {
  double base = 0.01;
  /// Length of the warm-up in epochs, possibly a fraction. During the warm-up, the scheduled rate
  /// is multiplied by epoch / warmup_epochs.
  double warmup_epochs = 0;
  std::variant<constant_rate, step_rate, exponential_rate, cosine_rate, one_cycle_rate> schedule;

  /// The rate after `epoch` epochs; epoch >= 0. It is 0 at the beginning of a warm-up, and at the
  /// end of a cosine schedule whose final_rate is 0. Each training step uses the rate at the middle
  /// of the step, because a step with rate 0 would change nothing.
  double at(double epoch) const;
  bool operator==(const learning_rate&) const = default;
};

/// An invalid number, such as a negative rate.
struct rate_problem {
  /// The field of a job file, for example "learning_rate.base".
  std::string field;
  /// The mistake, for example "expected a finite number, more than 0, got -1".
  std::string text;
};
/// Returns all invalid numbers of a learning rate. Used by the checks of job files, too.
std::vector<rate_problem> problems_of(const learning_rate& rate);
/// Throws input_error for the first invalid number. Does nothing if all numbers are valid.
void check(const learning_rate& rate);

} // namespace troupe
