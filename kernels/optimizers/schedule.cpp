#include "kernels/optimizers/schedule.hpp"

#include "kernels/error.hpp"
#include "kernels/text.hpp"

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

/// Follows half a cosine from `first` (progress 0) to `last` (progress 1).
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

/// A condition on a number, and its text for an error. `holds` returns false for NaN.
struct bound {
  bool (*holds)(double x);
  const char* text;
};

constexpr bound positive{[](double x) { return x > 0; }, "a finite number, more than 0"};
constexpr bound not_negative{[](double x) { return x >= 0; }, "a finite number, 0 or more"};
constexpr bound at_least_one{[](double x) { return x >= 1; }, "a finite number, 1 or more"};
constexpr bound part{[](double x) { return x >= 0 && x < 1; }, "0 or more and less than 1"};

struct bounded_field {
  const char* path;
  double value;
  bound limit;
};

std::vector<bounded_field> fields_of(const constant_rate&) {
  return {};
}
std::vector<bounded_field> fields_of(const step_rate& x) {
  return {{"learning_rate.step.every_epochs", x.every_epochs, positive},
          {"learning_rate.step.factor", x.factor, positive}};
}
std::vector<bounded_field> fields_of(const exponential_rate& x) {
  return {{"learning_rate.exponential.factor", x.factor, positive}};
}
std::vector<bounded_field> fields_of(const cosine_rate& x) {
  return {{"learning_rate.cosine.final", x.final_rate, not_negative},
          {"epochs", x.epochs, positive}};
}
std::vector<bounded_field> fields_of(const one_cycle_rate& x) {
  return {{"learning_rate.one_cycle.rising", x.rising, part},
          {"learning_rate.one_cycle.start_divisor", x.start_divisor, at_least_one},
          {"learning_rate.one_cycle.end_divisor", x.end_divisor, at_least_one},
          {"epochs", x.epochs, positive}};
}

/// Writes a number for an error. Numbers in job files are float32. So a number that is exactly a
/// float32 is written with the digits of a float32: 0.1, not 0.10000000149011612.
std::string text_of(double x) {
  const auto narrow = static_cast<float>(x);
  return static_cast<double>(narrow) == x ? number_text(narrow) : number_text(x);
}

} // namespace

double learning_rate::at(double epoch) const {
  const double rate =
    std::visit([&](const auto& x) { return scheduled(x, base, epoch); }, schedule);
  return epoch < warmup_epochs ? rate * (epoch / warmup_epochs) : rate;
}

std::vector<rate_problem> problems_of(const learning_rate& rate) {
  auto fields = std::visit([](const auto& x) { return fields_of(x); }, rate.schedule);
  fields.insert(fields.begin(),
                {{"learning_rate.base", rate.base, positive},
                 {"learning_rate.warmup_epochs", rate.warmup_epochs, not_negative}});
  std::vector<rate_problem> result;
  for (const auto& x : fields)
    if (!x.limit.holds(x.value) || !std::isfinite(x.value))
      result.push_back(
        {x.path, std::string{"expected "} + x.limit.text + ", got " + text_of(x.value)});
  return result;
}

void check(const learning_rate& rate) {
  if (const auto found = problems_of(rate); !found.empty())
    throw input_error(found[0].field + ": " + found[0].text);
}

} // namespace troupe
