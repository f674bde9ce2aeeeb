#include "actors/model/measures.hpp"

#include "actors/model/data_shape.hpp"
#include "actors/model/model_builder.hpp"
#include "kernels/error.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

/// Largest number of classes of a confusion matrix. A larger matrix is unreadable, and would make
/// each line of metrics.jsonl long.
constexpr std::size_t most_confused = 100;

constexpr std::size_t top = 5;

/// The predicted class: the class with the largest output. A single output is that of class 1; the
/// output of class 0 is then 0.
std::size_t chosen(std::span<const float> outputs) {
  if (outputs.size() == 1)
    return outputs[0] > 0 ? 1 : 0;
  return static_cast<std::size_t>(std::ranges::max_element(outputs) - outputs.begin());
}

std::string misfit(proto::Measure measure, const proto::Job& job, const data_shape& data,
                   std::size_t classes) {
  const auto loss = job.model().loss();
  if (measure == proto::PERPLEXITY)
    return loss == proto::SOFTMAX_CROSS_ENTROPY
      ? ""
      : "needs model.loss: SOFTMAX_CROSS_ENTROPY, and the loss is " + proto::Loss_Name(loss);
  if (data.labels != label_kind::classes)
    return "needs labels that are classes, and the data have targets (numbers)";
  const auto has = ", and the model has " + std::to_string(classes);
  if (measure == proto::TOP_5 && classes <= top)
    return "needs more than " + std::to_string(top) + " classes" + has;
  if (measure == proto::AUC && classes != 2)
    return "needs two classes" + has;
  if (measure == proto::CONFUSION && classes > most_confused)
    return "needs at most " + std::to_string(most_confused) + " classes" + has;
  return "";
}

} // namespace

void check_measures(const proto::Job& job, const data_shape& data, const built_model& model) {
  const auto units = static_cast<std::size_t>(model.output.shape().last());
  const auto classes = std::max<std::size_t>(units, 2);
  for (int i = 0; i < job.evaluate().measure_size(); ++i) {
    const auto measure = job.evaluate().measure(i);
    const auto problem = measure == proto::MEASURE_UNSET
      ? std::string{"expected TOP_5, AUC, F1, PERPLEXITY or CONFUSION"}
      : proto::Measure_Name(measure) + ' ' + misfit(measure, job, data, classes);
    if (measure == proto::MEASURE_UNSET || !misfit(measure, job, data, classes).empty())
      throw input_error{"evaluate.measure[" + std::to_string(i) + "]: " + problem};
  }
}

std::vector<std::pair<std::string, double>> measured::numbers() const {
  std::vector<std::pair<std::string, double>> result;
  for (const auto& [name, value] : {std::pair{"top_5", top_5}, std::pair{"auc", auc},
                                    std::pair{"f1", f1}, std::pair{"perplexity", perplexity}})
    if (value)
      result.emplace_back(name, *value);
  return result;
}

std::size_t measured::classes() const noexcept {
  return static_cast<std::size_t>(std::lround(std::sqrt(confusion.size())));
}

measurer::measurer(const proto::Job& job) {
  for (const auto x : job.evaluate().measure())
    wants_ |= 1U << x;
  if (job.model().has_ignored_label())
    ignored_ = job.model().ignored_label();
}

void measurer::add(std::span<const std::int32_t> labels, std::span<const float> outputs) {
  const auto units = outputs.size() / std::max<std::size_t>(labels.size(), 1);
  classes_ = std::max<std::size_t>(units, 2);
  all_labels_ += labels.size();
  if (confusion_.empty() && (wants(proto::F1) || wants(proto::CONFUSION)))
    confusion_.resize(classes_ * classes_);
  // If a label is not a class, or if an output is not finite, the loss is not finite either. The
  // error of the loss then reports the problem, so there is no error here.
  const auto is_class = [this](std::int32_t x) { return x >= 0 && std::cmp_less(x, classes_); };
  if (!std::ranges::all_of(outputs, [](float x) { return std::isfinite(x); })) {
    broken_ = true;
    return;
  }
  for (std::size_t i = 0; i < labels.size(); ++i)
    if ((!ignored_ || labels[i] != *ignored_) && is_class(labels[i]))
      count(static_cast<std::size_t>(labels[i]), outputs.subspan(i * units, units));
}

void measurer::count(std::size_t label, std::span<const float> outputs) {
  ++labels_;
  if (wants(proto::TOP_5)) {
    std::size_t before = 0;
    for (std::size_t c = 0; c < outputs.size(); ++c)
      before += outputs[c] > outputs[label] || (outputs[c] == outputs[label] && c < label) ? 1 : 0;
    in_top_5_ += before < top ? 1 : 0;
  }
  if (!confusion_.empty())
    ++confusion_[label * classes_ + chosen(outputs)];
  if (wants(proto::AUC))
    scores_.emplace_back(outputs.size() == 1 ? outputs[0] : outputs[1] - outputs[0], label == 1);
}

measured measurer::result(double loss) const {
  measured x;
  // The mean loss has a term of 0 for each ignored label.
  if (wants(proto::PERPLEXITY))
    x.perplexity = std::exp(labels_ == 0 ? loss
                                         : loss * static_cast<double>(all_labels_)
                                             / static_cast<double>(labels_));
  if (labels_ == 0 || broken_)
    return x;
  if (wants(proto::TOP_5))
    x.top_5 = static_cast<double>(in_top_5_) / static_cast<double>(labels_);
  if (wants(proto::F1))
    x.f1 = f1();
  if (wants(proto::AUC))
    x.auc = auc();
  if (wants(proto::CONFUSION))
    x.confusion = confusion_;
  return x;
}

double measurer::f1() const {
  double sum = 0;
  std::size_t used = 0;
  for (std::size_t c = 0; c < classes_; ++c) {
    std::uint64_t labels = 0;
    std::uint64_t predictions = 0;
    for (std::size_t k = 0; k < classes_; ++k) {
      labels += confusion_[c * classes_ + k];
      predictions += confusion_[k * classes_ + c];
    }
    if (labels + predictions == 0)
      continue;
    ++used;
    sum += 2 * static_cast<double>(confusion_[c * classes_ + c])
      / static_cast<double>(labels + predictions);
  }
  return sum / static_cast<double>(used);
}

// Sorts all scores, and computes the result from the sum of the ranks of class 1. Equal scores
// share the mean of their ranks.
std::optional<double> measurer::auc() const {
  auto sorted = scores_;
  std::ranges::sort(sorted);
  double ranks = 0;
  double ones = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    auto end = i;
    double here = 0;
    for (; end < sorted.size() && sorted[end].first == sorted[i].first; ++end)
      here += sorted[end].second ? 1 : 0;
    ranks += here * static_cast<double>(i + 1 + end) / 2;
    ones += here;
    i = end;
  }
  const auto zeros = static_cast<double>(sorted.size()) - ones;
  if (ones == 0 || zeros == 0)
    return std::nullopt;
  return (ranks - ones * (ones + 1) / 2) / (ones * zeros);
}

} // namespace troupe
