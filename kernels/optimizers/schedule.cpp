#include "kernels/optimizers/schedule.hpp"

#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace troupe {

namespace {

double scheduled(const constant_rate&, double base, double) {
  return base;
}

double scheduled(const step_rate& x, double base, double epoch) {
  return base * std::pow(x.factor, std::floor(epoch / x.every_epochs));
}

double scheduled(const exponential_rate& x, double base, double epoch) {
  return base * std::pow(x.factor, epoch);
}

/// From `first` to `last` along half a cosine while progress goes from 0 to 1.
double along_cosine(double first, double last, double progress) {
  return last + (first - last) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double scheduled(const cosine_rate& x, double base, double epoch) {
  return along_cosine(base, x.final_rate, std::clamp(epoch / x.epochs, 0.0, 1.0));
}

double scheduled(const one_cycle_rate& x, double base, double epoch) {
  const double start = base / x.start_divisor;
  const double progress = std::clamp(epoch / x.epochs, 0.0, 1.0);
  if (progress < x.rising)
    return along_cosine(start, base, progress / x.rising);
  return along_cosine(base, start / x.end_divisor, (progress - x.rising) / (1 - x.rising));
}

void check_field(bool good, const char* field, double value, const char* expected) {
  if (!good || !std::isfinite(value))
    throw input_error(std::string(field) + " is " + std::to_string(value) + "; expected "
                      + expected);
}

} // namespace

double learning_rate::at(double epoch) const {
  const double rate =
    std::visit([&](const auto& x) { return scheduled(x, base, epoch); }, schedule);
  return epoch < warmup_epochs ? rate * (epoch / warmup_epochs) : rate;
}

void check(const learning_rate& rate) {
  const auto* const not_negative = "a number >= 0";
  const auto* const positive = "a number > 0";
  check_field(rate.base >= 0, "learning_rate.base", rate.base, not_negative);
  check_field(rate.warmup_epochs >= 0, "learning_rate.warmup_epochs", rate.warmup_epochs,
              not_negative);
  if (const auto* step = std::get_if<step_rate>(&rate.schedule)) {
    check_field(step->every_epochs > 0, "learning_rate.step.every_epochs", step->every_epochs,
                positive);
    check_field(step->factor >= 0, "learning_rate.step.factor", step->factor, not_negative);
  }
  if (const auto* exponential = std::get_if<exponential_rate>(&rate.schedule))
    check_field(exponential->factor >= 0, "learning_rate.exponential.factor", exponential->factor,
                not_negative);
  if (const auto* cycle = std::get_if<one_cycle_rate>(&rate.schedule)) {
    check_field(cycle->rising >= 0 && cycle->rising < 1, "learning_rate.one_cycle.rising",
                cycle->rising, "a part of the job, 0 or more and less than 1");
    check_field(cycle->start_divisor >= 1, "learning_rate.one_cycle.start_divisor",
                cycle->start_divisor, "a number >= 1");
    check_field(cycle->end_divisor >= 1, "learning_rate.one_cycle.end_divisor", cycle->end_divisor,
                "a number >= 1");
    check_field(cycle->epochs > 0, "epochs", cycle->epochs, positive);
  }
  if (const auto* cosine = std::get_if<cosine_rate>(&rate.schedule)) {
    check_field(cosine->final_rate >= 0, "learning_rate.cosine.final", cosine->final_rate,
                not_negative);
    check_field(cosine->epochs > 0, "epochs", cosine->epochs, positive);
  }
}

} // namespace troupe
