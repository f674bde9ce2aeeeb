#include "actors/model/constant_guess.hpp"

#include "actors/model/dataset_labels.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe {

namespace {

constexpr std::uint64_t most_records = 4096;

using labels = record_labels;

double entropy(double p) {
  return p > 0 ? -p * std::log(p) : 0;
}

std::optional<double> class_entropy(const proto::Model& model, const labels& x,
                                    std::size_t classes) {
  std::vector<double> share(classes, 0);
  double count = 0;
  for (const auto c : x.classes) {
    if (model.has_ignored_label() && c == model.ignored_label())
      continue;
    if (c < 0 || static_cast<std::size_t>(c) >= classes)
      return std::nullopt;
    share[static_cast<std::size_t>(c)] += 1;
    count += 1;
  }
  if (count == 0)
    return std::nullopt;
  double result = 0;
  const double smoothing = model.label_smoothing();
  for (const auto n : share)
    result += entropy((1 - smoothing) * n / count + smoothing / static_cast<double>(classes));
  // The loss of a model is the mean over all labels. Ignored ones count as 0.
  return result * count / static_cast<double>(x.classes.size());
}

/// The mean target of each output. Two classes count as the targets 0 and 1.
std::vector<double> mean_targets(const labels& x, std::size_t width) {
  if (!x.classes.empty()) {
    double sum = 0;
    for (const auto c : x.classes)
      sum += c > 0 ? 1 : 0;
    return {sum / static_cast<double>(x.classes.size())};
  }
  std::vector<double> result(width, 0);
  const auto rows = x.targets.size() / width;
  for (std::size_t i = 0; i < x.targets.size(); ++i)
    result[i % width] += static_cast<double>(x.targets[i]) / static_cast<double>(rows);
  return result;
}

double mean_of(const std::vector<double>& x) {
  double sum = 0;
  for (const auto v : x)
    sum += v;
  return sum / static_cast<double>(x.size());
}

double variance(const labels& x, std::size_t width) {
  const auto means = mean_targets(x, width);
  double sum = 0;
  for (std::size_t i = 0; i < x.targets.size(); ++i) {
    const double d = static_cast<double>(x.targets[i]) - means[i % width];
    sum += d * d;
  }
  return sum / static_cast<double>(x.targets.size());
}

double distance_from_median(const labels& x, std::size_t width) {
  double sum = 0;
  for (std::size_t k = 0; k < width; ++k) {
    std::vector<float> column;
    for (std::size_t i = k; i < x.targets.size(); i += width)
      column.push_back(x.targets[i]);
    const auto middle = column.begin() + static_cast<std::ptrdiff_t>(column.size() / 2);
    std::ranges::nth_element(column, middle);
    const double median = *middle;
    for (const auto v : column)
      sum += std::abs(static_cast<double>(v) - median);
  }
  return sum / static_cast<double>(x.targets.size());
}

} // namespace

std::optional<double> constant_guess_loss(const proto::Model& model, const dataset& data) {
  if (data.size() == 0)
    return std::nullopt;
  const auto width = data.record().label_width;
  const auto x = read_labels(data, most_records);
  const bool targets = !x.targets.empty();
  switch (model.loss()) {
  case proto::SOFTMAX_CROSS_ENTROPY:
    return targets ? std::nullopt : class_entropy(model, x, width);
  case proto::MEAN_SQUARED_ERROR:
    return targets ? std::optional{variance(x, width)} : std::nullopt;
  case proto::MEAN_ABSOLUTE_ERROR:
    return targets ? std::optional{distance_from_median(x, width)} : std::nullopt;
  case proto::BINARY_CROSS_ENTROPY: {
    auto means = mean_targets(x, width);
    for (auto& p : means) {
      if (!(p >= 0 && p <= 1))
        return std::nullopt;
      p = entropy(p) + entropy(1 - p);
    }
    return mean_of(means);
  }
  case proto::HINGE: {
    auto means = mean_targets(x, width);
    for (auto& p : means) {
      // For hinge loss, targets are -1 and 1. This line turns their mean into the share of the
      // targets that are 1.
      if (targets)
        p = (1 + p) / 2;
      p = 2 * std::min(p, 1 - p);
    }
    return mean_of(means);
  }
  default:
    return std::nullopt;
  }
}

} // namespace troupe
