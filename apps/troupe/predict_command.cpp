#include "apps/troupe/commands.hpp"

#include "actors/model/data_metadata.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/model_tester.hpp"
#include "actors/model/text_generator.hpp"
#include "actors/output/text.hpp"
#include "actors/storage/storage.hpp"
#include "apps/troupe/limits.hpp"
#include "apps/troupe/numbers.hpp"
#include "apps/troupe/pictures.hpp"
#include "apps/troupe/session.hpp"
#include "apps/troupe/setup.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t largest_side = 78; // fits on a terminal

/// The prediction for a record: the class with the largest logit, and its probability.
struct choice {
  std::size_t which = 0;
  double probability = 0;
};

choice choose(std::span<const float> logits) {
  if (logits.size() == 1) { // For two classes.
    const double one = 1 / (1 + std::exp(-static_cast<double>(logits[0])));
    return logits[0] > 0 ? choice{1, one} : choice{0, 1 - one};
  }
  const auto best = std::ranges::max_element(logits);
  double total = 0;
  for (auto x : logits)
    total += std::exp(static_cast<double>(x) - static_cast<double>(*best));
  return {static_cast<std::size_t>(best - logits.begin()), 1 / total};
}

/// A field of a CSV file, in quotes if necessary.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string result = "\"";
  for (const char c : text)
    result += c == '"' ? std::string{"\"\""} : std::string{c};
  return result + '"';
}

/// The probabilities of all classes from logits. A single logit belongs to the second of two
/// classes.
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

/// The predictions as CSV. Records have the numbers from their file. Targets are in the units of
/// the data. Classes appear by name if they have names.
class prediction_table {
public:
  prediction_table(const job_context& context, const job_data& data)
    : test_(*data.test), names_(data.class_names), loss_(context.job.model().loss()),
      labels_(context.data.labels == label_kind::classes ? context.data.labels_per_record : 1) {
    const auto units = static_cast<std::size_t>(context.model.output.shape().last());
    text_ = labels_ > 1 ? "record,loss,accuracy\n"
      : context.data.labels == label_kind::classes
      ? heading_of_classes(std::max<std::size_t>(units, 2))
      : heading_of_targets(context.data.label_width);
    if (data.scaling) {
      mean_ = data.scaling->target_mean.at(0);
      scale_ = data.scaling->target_scale.at(0);
    }
  }

  void add(const tested_records& x) {
    if (labels_ > 1) {
      add_sequences(x);
      return;
    }
    const auto units = x.outputs.size() / x.count;
    auto out = std::back_inserter(text_);
    for (std::size_t i = 0; i < x.count; ++i)
      if (x.targets.empty()) {
        add_class(test_.origin(x.first + i), x.classes[i], x.outputs.subspan(i * units, units));
      } else {
        fmt::format_to(out, "{}", test_.origin(x.first + i));
        for (auto k = i * units; k < (i + 1) * units; ++k)
          fmt::format_to(out, ",{:.7g},{:.7g}", in_units(x.targets[k]), prediction(x.outputs[k]));
        text_ += '\n';
      }
  }

  const std::string& text() const noexcept { return text_; }

private:
  /// The outputs for a margin loss are not logits, so they give no probabilities.
  bool has_probabilities() const { return loss_ != proto::HINGE; }

  /// An ignored label may not be one of the classes.
  std::string name_of(std::int64_t which) const {
    const auto place = static_cast<std::size_t>(which);
    return place < names_.size() ? csv_field(names_[place]) : std::to_string(which);
  }

  std::string heading_of_classes(std::size_t classes) const {
    if (!has_probabilities())
      return "record,label,prediction,output\n";
    std::string result = "record,label,prediction,probability";
    for (std::size_t c = 0; c < classes; ++c)
      result +=
        ',' + csv_field("probability_" + (c < names_.size() ? names_[c] : std::to_string(c)));
    return result + '\n';
  }

  void add_class(std::uint64_t record, std::int32_t label, std::span<const float> outputs) {
    const auto said = choose(outputs);
    auto out = std::back_inserter(text_);
    fmt::format_to(out, "{},{},{}", record, name_of(label),
                   name_of(static_cast<std::int64_t>(said.which)));
    if (has_probabilities()) {
      fmt::format_to(out, ",{:.6f}", said.probability);
      for (const auto p : probabilities(outputs))
        fmt::format_to(out, ",{:.6f}", p);
    } else {
      fmt::format_to(out, ",{:.7g}", outputs[0]);
    }
    text_ += '\n';
  }

  static std::string heading_of_targets(std::size_t targets) {
    if (targets == 1)
      return "record,target,prediction\n";
    std::string result = "record";
    for (std::size_t k = 1; k <= targets; ++k)
      result += fmt::format(",target_{0},prediction_{0}", k);
    return result + '\n';
  }

  /// For each record, adds the means over its labels.
  void add_sequences(const tested_records& x) {
    const auto units = x.outputs.size() / x.classes.size();
    for (std::size_t i = 0; i < x.count; ++i) {
      double loss = 0;
      std::size_t right = 0;
      for (auto k = i * labels_; k < (i + 1) * labels_; ++k) {
        const auto logits = x.outputs.subspan(k * units, units);
        const auto label = static_cast<std::size_t>(x.classes[k]);
        const auto said = choose(logits);
        right += said.which == label ? 1 : 0;
        loss -= std::log(said.probability) + static_cast<double>(logits[label])
          - static_cast<double>(logits[said.which]);
      }
      const auto n = static_cast<double>(labels_);
      fmt::format_to(std::back_inserter(text_), "{},{:.7g},{:.6f}\n", test_.origin(x.first + i),
                     loss / n, static_cast<double>(right) / n);
    }
  }

  double in_units(float x) const { return static_cast<double>(x) * scale_ + mean_; }

  /// Converts an output to the units of the targets.
  double prediction(float x) const {
    return loss_ == proto::BINARY_CROSS_ENTROPY ? 1 / (1 + std::exp(-static_cast<double>(x)))
                                                : in_units(x);
  }

  const dataset& test_;
  std::vector<std::string> names_;
  proto::Loss loss_;
  std::size_t labels_;
  std::string text_;
  double mean_ = 0;
  double scale_ = 1;
};

/// The first records that the model got right, from different classes if possible, and the first
/// that it got wrong.
class gallery {
public:
  gallery(std::size_t count, std::size_t side) : count_(count), side_(side) {}

  void add(const tested_records& x) {
    const auto units = x.outputs.size() / std::max<std::size_t>(x.count, 1);
    const auto pixels = side_ * side_;
    for (std::size_t i = 0; i < x.count; ++i) {
      const auto said = choose(x.outputs.subspan(i * units, units));
      const bool right = static_cast<std::int32_t>(said.which) == x.classes[i];
      auto& list = !right ? wrong_ : shown_.insert(said.which).second ? right_ : more_right_;
      if (list.size() == count_)
        continue;
      const auto features = x.features.subspan(i * pixels, pixels);
      const auto caption = right
        ? fmt::format("{} ({:.0f} %)", said.which, 100 * said.probability)
        : fmt::format("{}, but is {} ({:.0f} %)", said.which, x.classes[i], 100 * said.probability);
      list.push_back({side_, {features.begin(), features.end()}, caption});
    }
  }

  /// Half of them are right and half wrong, if there are enough of both.
  std::string text() {
    std::ranges::move(more_right_, std::back_inserter(right_));
    const auto wrong =
      std::min(wrong_.size(), std::max(count_ / 2, count_ - std::min(right_.size(), count_)));
    const auto right = std::min(right_.size(), count_ - wrong);
    std::string result;
    if (right > 0)
      result += "\nRight, and how sure the model is:\n\n" + draw(std::span{right_}.first(right));
    if (wrong > 0)
      result += "\nWrong:\n\n" + draw(std::span{wrong_}.first(wrong));
    return result;
  }

private:
  std::size_t count_;
  std::size_t side_;
  std::set<std::size_t> shown_;
  std::vector<picture> right_;
  std::vector<picture> more_right_;
  std::vector<picture> wrong_;
};

/// The side length of square images. Throws if the data does not consist of square images.
std::size_t side_of(const data_shape& data) {
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(data.feature_width())));
  if (data.labels != label_kind::classes || side * side != data.feature_width() || side < 2
      || side > largest_side)
    throw input_error{fmt::format(
      "--show draws square images of 2 to {} pixels a side, with classes; the data have {} {} per "
      "record",
      largest_side, data.feature_width(),
      data.labels == label_kind::classes ? "pixels" : "features")};
  return side;
}

/// Throws if predictions cannot be written, before anything is computed.
void check_writable(const std::filesystem::path& file) {
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path{"."};
  std::error_code ignored;
  std::string problem;
  if (!std::filesystem::is_directory(folder, ignored))
    problem = "there is no directory " + folder.string();
  else if (::access(folder.c_str(), W_OK | X_OK) != 0)
    problem = "the directory " + folder.string() + " is not writable";
  else if (std::filesystem::exists(file, ignored)
           && !std::filesystem::is_regular_file(file, ignored))
    problem = "it exists but is not a file";
  if (!problem.empty())
    throw input_error{"--predictions=" + file.string() + ": " + problem
                      + "; give another, or - for standard output"};
}

/// Writes the prompt and its continuation.
int generate(const predict_command& x, const job_context& context, const job_data& data,
             std::span<const float> weights) {
  if (!data.characters)
    throw input_error{"--generate: the job's data is not text (data.text)"};
  if (x.prompt.empty())
    throw input_error{"--prompt: empty; give at least one character"};
  const auto prompt =
    data.characters->encode(decode_utf8(as_byte_span(x.prompt), "--prompt"), "--prompt");
  const auto tokens =
    text_generator{context}.run(weights, prompt, {x.generate, x.temperature, x.text_seed});
  fmt::print("{}{}\n", x.prompt, encode_utf8(data.characters->decode(tokens)));
  if (std::fflush(stdout) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot write to standard output"};
  return exit_done;
}

} // namespace

int run(const predict_command& x) {
  const bool to_output = x.predictions == "-";
  if (!x.predictions.empty() && !to_output)
    check_writable(x.predictions);
  const auto job = load_job(x.job, x.overrides, "", "");
  auto data = build_data(job);
  const auto context = with_job_lines(x.job, x.overrides,
                                      [&] { return make_job_context(job, shape_of(*data.train)); });
  // Memory for the weights file and the weights.
  check_memory(memory_problem(2 * context->parameters().size() * sizeof(float)
                              + model_tester::memory_bytes(*context)),
               "predict on a host with more memory");
  const auto model = read_model(read_file(x.weights), context->parameters(), x.weights);
  require_finite(context->parameters(), model.weights, x.weights);
  if (x.generate > 0)
    return generate(x, *context, data, model.weights);
  const auto own_scale = metadata_of(data);
  data = as_trained(std::move(data), model.info.more, x.weights);
  std::optional<prediction_table> table;
  std::optional<gallery> pictures;
  if (!x.predictions.empty())
    table.emplace(*context, data);
  if (x.show > 0)
    pictures.emplace(x.show, side_of(context->data));
  const auto collect = [&](const tested_records& tested) {
    if (table)
      table->add(tested);
    if (pictures)
      pictures->add(tested);
  };
  const auto result = model_tester{*context}.run(model.weights, *data.test, collect);
  auto* report = to_output ? stderr : stdout;
  const auto line = [&](const char* what, const std::string& value) {
    fmt::print(report, "  {:<20}{}\n", what, value);
  };
  line("weights", fmt::format("{}, version {}", x.weights, model.info.version));
  if (!model.info.job_hash.empty() && model.info.job_hash != context->hash)
    line("",
         fmt::format("(trained by another job, hash {}; its data or settings may differ)",
                     model.info.job_hash.substr(0, 12)));
  if (metadata_of(data) != own_scale)
    line("", "(these records are scaled as those of the training)");
  line("test records", grouped(static_cast<double>(data.test->size())));
  line("test loss", fmt::format("{:.5g}", result.loss));
  if (result.accuracy)
    line("test accuracy", fmt::format("{:.2f} %", 100 * *result.accuracy));
  for (const auto& [name, value] : result.measures.numbers())
    line(("test " + name).c_str(), fmt::format("{:.5g}", value));
  if (table && !to_output) {
    disk_storage{}.replace(x.predictions, as_byte_span(table->text()));
    line("predictions", x.predictions);
  }
  if (pictures)
    fmt::print(report, "{}", pictures->text());
  if (to_output)
    fmt::print("{}", table->text());
  if (std::fflush(stdout) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot write to standard output"};
  return exit_done;
}

} // namespace troupe
