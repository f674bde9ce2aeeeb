#include "apps/troupe/commands.hpp"

#include "actors/model/data_metadata.hpp"
#include "actors/model/device_placement.hpp"
#include "actors/model/feature_files.hpp"
#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/model_tester.hpp"
#include "actors/output/text.hpp"
#include "actors/worker/task_device.hpp"
#include "apps/troupe/gpus.hpp"
#include "apps/troupe/limits.hpp"
#include "apps/troupe/numbers.hpp"
#include "apps/troupe/pictures.hpp"
#include "apps/troupe/prediction_table.hpp"
#include "apps/troupe/session.hpp"
#include "apps/troupe/setup.hpp"
#include "kernels/devices/device_error.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t largest_side = 78; // fits on a terminal

/// Collects pictures of test records for --show: the first records with right predictions, if
/// possible from different classes, and the first records with wrong predictions.
class gallery {
public:
  gallery(std::size_t count, std::size_t side) : count_(count), side_(side) {}

  void add(const tested_records& x) {
    const auto units = x.outputs.size() / std::max<std::size_t>(x.count, 1);
    const auto pixels = side_ * side_;
    for (std::size_t i = 0; i < x.count; ++i) {
      const auto said = choose_class(x.outputs.subspan(i * units, units));
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

  /// Draws `count` pictures. Half of them have right predictions and half have wrong ones, if there
  /// are enough of both.
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

/// The side length of square images. Throws if the data does not consist of square images with one
/// label each.
std::size_t side_of(const data_shape& data) {
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(data.feature_width())));
  const auto extent = static_cast<std::int64_t>(side);
  const bool square = data.dims == shape{extent * extent} || data.dims == shape{extent, extent}
    || data.dims == shape{1, extent, extent};
  if (data.features != feature_kind::numbers || data.labels != label_kind::classes
      || data.labels_per_record != 1 || !square || side < 2 || side > largest_side)
    throw input_error{fmt::format(
      "--show draws square images of 2 to {} pixels a side, with classes; the data have {} {} per "
      "record",
      largest_side, data.feature_width(),
      data.labels == label_kind::classes ? "pixels" : "features")};
  return side;
}

/// The destination of predictions: standard output, or a file. The file gets its name when it is
/// complete.
class prediction_file {
public:
  explicit prediction_file(const std::string& path) {
    if (path == "-")
      return;
    check_writable("--predictions", path, "give another, or - for standard output");
    use_file([&] { file_.emplace(path); });
  }

  void write(const std::string& text) {
    if (file_)
      use_file([&] { file_->write(as_byte_span(text)); });
    else if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
      throw std::system_error{errno, std::generic_category(), "cannot write to standard output"};
  }

  void finish() {
    if (file_)
      use_file([&] { file_->finish(); });
  }

private:
  /// Reports errors of the file as input_error, because the user chose the file.
  template <class F>
  static void use_file(F f) {
    try {
      f();
    } catch (const std::system_error& error) {
      throw input_error{std::string{"--predictions: "} + error.what()};
    }
  }

  std::optional<file_writer> file_;
};

/// Prints a line of the report: to standard output, or to standard error if the predictions go to
/// standard output.
void report(const predict_command& x, const char* what, const std::string& value) {
  fmt::print(x.predictions == "-" ? stderr : stdout, "  {:<20}{}\n", what, value);
}

void flush_output() {
  if (std::fflush(stdout) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot write to standard output"};
}

/// Throws if there is too little memory for the weights file, the weights, and the computation.
void check_room(const job_context& context, const device_name& device) {
  check_memory(memory_problem(2 * context.parameters().size() * sizeof(float)
                              + model_tester::memory_bytes(context, !device.gpu)),
               "predict on a host with more memory");
}

/// Facts about the training data that predictions need, such as its shape. They come from the
/// weights file or, if another program wrote this file, from the job's data.
std::map<std::string, std::string>
training_metadata(const proto::Job& job, std::span<const std::byte> file, const std::string& name) {
  auto result = read_model_info(file, name).more;
  if (!result.contains("data"))
    result.merge(metadata_of(build_data(job)));
  return result;
}

/// Writes predictions for records without labels. It reads and predicts one part of the records at
/// a time.
int predict_features(const predict_command& x, const device_name& device) {
  auto job = load_job(x.job, x.overrides, "", "");
  job.clear_evaluate(); // Measures need labels.
  const auto file = read_file(x.weights);
  const auto facts = facts_in(training_metadata(job, file, x.weights), x.weights);
  const auto context =
    with_job_lines(x.job, x.overrides, [&] { return make_job_context(job, facts.shape); });
  check_room(*context, device);
  const auto model = read_model(file, context->parameters(), x.weights);
  require_finite(context->parameters(), model.weights, x.weights);
  const prediction_table table{*context, facts.class_names, facts.targets, false};
  const auto features = open_features(job, facts, x.features);
  prediction_file out{x.predictions};
  const auto tester = make_tester(*context, device, gpus_here().get());
  std::uint64_t records = 0;
  for (auto part = features->next(); part.records; part = features->next()) {
    if (records == 0)
      out.write(table.heading(part.files.empty() ? "record" : "file"));
    const auto name_of = [&](std::uint64_t record) {
      const auto i = part.records->origin(record);
      return part.files.empty() ? std::to_string(part.first + i) : part.files[i];
    };
    tester->run(model.weights, *part.records,
                [&](const tested_records& tested) { out.write(table.lines(tested, name_of)); });
    records += part.records->size();
  }
  if (records == 0)
    throw input_error{x.features + ": no records"};
  out.finish();
  report(x, "weights", fmt::format("{}, version {}", x.weights, model.info.version));
  report(x, "records", grouped(static_cast<double>(records)));
  if (x.predictions != "-")
    report(x, "predictions", x.predictions);
  flush_output();
  return exit_done;
}

/// Writes the prompt and the text with which the model continues it.
int generate(const predict_command& x, const device_name& device, const job_context& context,
             const job_data& data, std::span<const float> weights) {
  if (!data.characters)
    throw input_error{"--generate: the job's data is not text (data.text)"};
  if (x.prompt.empty())
    throw input_error{"--prompt: empty; give at least one character"};
  const auto prompt =
    data.characters->encode(decode_utf8(as_byte_span(x.prompt), "--prompt"), "--prompt");
  const auto tokens = make_generator(context, device, gpus_here().get())
                        .run(weights, prompt, {x.generate, x.temperature, x.text_seed});
  fmt::print("{}{}\n", x.prompt, encode_utf8(data.characters->decode(tokens)));
  if (std::fflush(stdout) != 0)
    throw std::system_error{errno, std::generic_category(), "cannot write to standard output"};
  return exit_done;
}

/// Tests the weights on the test data, or continues a text (--generate).
int predict_tests(const predict_command& x, const device_name& device) {
  std::optional<prediction_file> out;
  if (!x.predictions.empty())
    out.emplace(x.predictions);
  const auto job = load_job(x.job, x.overrides, "", "");
  auto data = build_data_for(job, x.weights);
  const auto context = with_job_lines(x.job, x.overrides,
                                      [&] { return make_job_context(job, shape_of(*data.train)); });
  check_room(*context, device);
  const auto model = read_model(read_file(x.weights), context->parameters(), x.weights);
  require_finite(context->parameters(), model.weights, x.weights);
  if (x.generate > 0)
    return generate(x, device, *context, data, model.weights);
  const auto tester = make_tester(*context, device, gpus_here().get());
  const auto own_scale = metadata_of(data);
  data = as_trained(std::move(data), model.info.more, x.weights);
  feature_scaling targets{{0}, {1}};
  if (data.scaling)
    targets = {data.scaling->target_mean, data.scaling->target_scale};
  const prediction_table table{*context, data.class_names, targets, true};
  std::optional<gallery> pictures;
  if (x.show > 0)
    pictures.emplace(x.show, side_of(context->data));
  if (out)
    out->write(table.heading("record"));
  const auto collect = [&](const tested_records& tested) {
    if (out)
      out->write(table.lines(tested, [&](auto i) { return std::to_string(data.test->origin(i)); }));
    if (pictures)
      pictures->add(tested);
  };
  const auto result = tester->run(model.weights, *data.test, collect);
  if (out)
    out->finish();
  report(x, "weights", fmt::format("{}, version {}", x.weights, model.info.version));
  if (!model.info.job_hash.empty() && model.info.job_hash != context->hash)
    report(x, "",
           fmt::format("(trained by another job, hash {}; its data or settings may differ)",
                       model.info.job_hash.substr(0, 12)));
  if (metadata_of(data) != own_scale)
    report(x, "", "(these records are scaled like the training data)");
  report(x, "test records", grouped(static_cast<double>(data.test->size())));
  report(x, "test loss", fmt::format("{:.5g}", result.loss));
  if (result.accuracy)
    report(x, "test accuracy", fmt::format("{:.2f} %", 100 * *result.accuracy));
  for (const auto& [name, value] : result.measures.numbers())
    report(x, ("test " + name).c_str(), fmt::format("{:.5g}", value));
  if (out && x.predictions != "-")
    report(x, "predictions", x.predictions);
  if (pictures)
    fmt::print(x.predictions == "-" ? stderr : stdout, "{}", pictures->text());
  flush_output();
  return exit_done;
}

} // namespace

int run(const predict_command& given) {
  auto x = given;
  x.weights = weights_path(given.weights).string();
  const auto device = parse_device_name(x.device);
  try {
    return x.features.empty() ? predict_tests(x, device) : predict_features(x, device);
  } catch (const device_error& error) {
    throw device_error{"--device=" + x.device + ": " + error.what()
                       + ". Without --device, the CPU computes"};
  }
}

} // namespace troupe
