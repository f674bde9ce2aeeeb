#include "apps/troupe/prediction_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace troupe {

namespace {

/// A field of a CSV file, in quotes if necessary.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string result = "\"";
  for (const char c : text)
    result += c == '"' ? std::string{"\"\""} : std::string{c};
  return result + '"';
}

/// Computes the probabilities of all classes from logits. If there is a single logit, there are two
/// classes, and the logit is that of the second class.
std::vector<double> probabilities(std::span<const float> logits) {
  if (logits.size() == 1) {
    const double one = 1 / (1 + std::exp(-static_cast<double>(logits[0])));
    return {1 - one, one};
  }
  const double best = *std::ranges::max_element(logits);
  std::vector<double> result;
  double total = 0;
  for (auto x : logits) {
    result.push_back(std::exp(static_cast<double>(x) - best));
    total += result.back();
  }
  for (auto& x : result)
    x /= total;
  return result;
}

} // namespace

class_choice choose_class(std::span<const float> logits) {
  if (logits.size() == 1) { // The logit of the second of two classes.
    const double one = 1 / (1 + std::exp(-static_cast<double>(logits[0])));
    return logits[0] > 0 ? class_choice{1, one} : class_choice{0, 1 - one};
  }
  const auto best = std::ranges::max_element(logits);
  double total = 0;
  for (auto x : logits)
    total += std::exp(static_cast<double>(x) - static_cast<double>(*best));
  return {static_cast<std::size_t>(best - logits.begin()), 1 / total};
}

prediction_table::prediction_table(const job_context& context, std::vector<std::string> class_names,
                                   feature_scaling targets, bool labelled)
  : record_(context.data), units_(static_cast<std::size_t>(context.model.output.shape().last())),
    loss_(context.job.model().loss()), smoothing_(context.job.model().label_smoothing()),
    ignored_(context.job.model().has_ignored_label()
               ? std::optional{context.job.model().ignored_label()}
               : std::nullopt),
    names_(std::move(class_names)), mean_(targets.shift.at(0)), scale_(targets.scale.at(0)),
    labelled_(labelled) {}

std::string prediction_table::heading(const std::string& record) const {
  if (record_.labels == label_kind::targets)
    return record + heading_of_targets() + '\n';
  if (record_.labels_per_record == 1)
    return record + (labelled_ ? ",label" : "") + heading_of_classes() + '\n';
  return record + (labelled_ ? ",loss,accuracy" : ",position" + heading_of_classes()) + '\n';
}

std::string prediction_table::lines(const tested_records& x,
                                    function_ref<std::string(std::uint64_t)> name_of) const {
  const auto width = x.outputs.size() / std::max<std::size_t>(x.count, 1);
  const auto each = record_.label_elements();
  std::string text;
  for (std::size_t i = 0; i < x.count; ++i) {
    const auto name = csv_field(name_of(x.first + i));
    const auto outputs = x.outputs.subspan(i * width, width);
    if (x.classes.empty()) {
      text += name;
      add_targets(text, x.targets.subspan(i * each, each), outputs);
    } else if (each == 1) {
      text += name;
      add_class(text, labelled_ ? &x.classes[i] : nullptr, outputs);
    } else if (labelled_) {
      text += name;
      add_sequence(text, x.classes.subspan(i * each, each), outputs);
    } else {
      for (std::size_t k = 0; k < each; ++k) {
        text += name + ',' + std::to_string(k);
        add_class(text, nullptr, outputs.subspan(k * units_, units_));
      }
    }
  }
  return text;
}

/// The name of a class. If there is no class `which`, this is the number as text. An ignored label,
/// for example, may be such a number.
std::string prediction_table::name_of_class(std::int64_t which) const {
  const auto place = static_cast<std::size_t>(which);
  return place < names_.size() ? csv_field(names_[place]) : std::to_string(which);
}

std::string prediction_table::heading_of_classes() const {
  if (!has_probabilities())
    return ",prediction,output";
  std::string result = ",prediction,probability";
  for (std::size_t c = 0; c < std::max<std::size_t>(units_, 2); ++c)
    result += ',' + csv_field("probability_" + (c < names_.size() ? names_[c] : std::to_string(c)));
  return result;
}

std::string prediction_table::heading_of_targets() const {
  if (record_.label_width == 1)
    return labelled_ ? ",target,prediction" : ",prediction";
  std::string result;
  for (std::size_t k = 1; k <= record_.label_width; ++k)
    result +=
      fmt::format(fmt::runtime(labelled_ ? ",target_{0},prediction_{0}" : ",prediction_{0}"), k);
  return result;
}

/// @param label null if the label is unknown
void prediction_table::add_class(std::string& text, const std::int32_t* label,
                                 std::span<const float> outputs) const {
  const auto said = choose_class(outputs);
  auto out = std::back_inserter(text);
  if (label != nullptr)
    fmt::format_to(out, ",{}", name_of_class(*label));
  fmt::format_to(out, ",{}", name_of_class(static_cast<std::int64_t>(said.which)));
  if (has_probabilities()) {
    fmt::format_to(out, ",{:.6f}", said.probability);
    for (const auto p : probabilities(outputs))
      fmt::format_to(out, ",{:.6f}", p);
  } else {
    fmt::format_to(out, ",{:.7g}", outputs[0]);
  }
  text += '\n';
}

void prediction_table::add_targets(std::string& text, std::span<const float> targets,
                                   std::span<const float> outputs) const {
  auto out = std::back_inserter(text);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    if (labelled_)
      fmt::format_to(out, ",{:.7g}", in_units(targets[k]));
    fmt::format_to(out, ",{:.7g}", prediction(outputs[k]));
  }
  text += '\n';
}

/// Adds the loss and the accuracy of a record, as a test computes them. The loss is softmax
/// cross-entropy with label smoothing: the mean over all positions, to which ignored labels add 0.
/// The accuracy counts only the other positions. It is NaN if there are none.
void prediction_table::add_sequence(std::string& text, std::span<const std::int32_t> labels,
                                    std::span<const float> outputs) const {
  double loss = 0;
  std::size_t right = 0;
  std::size_t counted = 0;
  for (std::size_t k = 0; k < labels.size(); ++k) {
    const auto logits = outputs.subspan(k * units_, units_);
    const auto label = static_cast<std::size_t>(labels[k]);
    if (label >= units_ || labels[k] == ignored_)
      continue;
    ++counted;
    const auto said = choose_class(logits);
    right += said.which == label ? 1 : 0;
    const auto total = static_cast<double>(logits[said.which]) - std::log(said.probability);
    const auto mean =
      std::accumulate(logits.begin(), logits.end(), 0.0) / static_cast<double>(units_);
    loss += total - (1 - smoothing_) * static_cast<double>(logits[label]) - smoothing_ * mean;
  }
  const auto accuracy = counted > 0 ? static_cast<double>(right) / static_cast<double>(counted)
                                    : std::numeric_limits<double>::quiet_NaN();
  fmt::format_to(std::back_inserter(text), ",{:.7g},{:.6f}\n",
                 loss / static_cast<double>(labels.size()), accuracy);
}

double prediction_table::in_units(float x) const {
  return static_cast<double>(x) * scale_ + mean_;
}

/// Converts an output to a probability for BINARY_CROSS_ENTROPY, otherwise to the units of the
/// targets.
double prediction_table::prediction(float x) const {
  return loss_ == proto::BINARY_CROSS_ENTROPY ? 1 / (1 + std::exp(-static_cast<double>(x)))
                                              : in_units(x);
}

} // namespace troupe
