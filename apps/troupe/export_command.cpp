#include "apps/troupe/commands.hpp"

#include "actors/model/data_metadata.hpp"
#include "actors/model/job_context.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/model_source.hpp"
#include "actors/model/onnx/export.hpp"
#include "actors/model/token_input.hpp"
#include "actors/output/text.hpp"
#include "actors/storage/storage.hpp"
#include "apps/troupe/limits.hpp"
#include "apps/troupe/numbers.hpp"
#include "apps/troupe/session.hpp"
#include "apps/troupe/setup.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Warns about features of a table that lose much precision in float32, the type of the model's
/// input. (Features from arrays are float32 in training, too.)
void print_rounded(const job_data& data) {
  const auto& scaling = data.normalization;
  for (std::size_t i = 0; scaling && i < scaling->shift.size(); ++i) {
    const auto mean = scaling->shift[i];
    const auto deviation = scaling->scale[i];
    // A constant feature has a scale of 1, and gets no warning.
    if (deviation != 1 && std::abs(mean) > 0x1p16 * deviation)
      fmt::print(
        "  {:<20}(feature {} has mean {:.9g} and deviation {:.3g}. The model reads "
        "float32, which has 7 digits, so its outputs differ from `troupe predict`. Subtract "
        "{:.9g} from this feature, in the training data and in the model's input)\n",
        "warning", i < data.feature_names.size() ? data.feature_names[i] : std::to_string(i), mean,
        deviation, mean);
  }
}

} // namespace

int run(const export_command& x) {
  check_writable("--output", x.output, "give another");
  const auto job = load_job(x.job, x.overrides, "", "");
  const auto path = weights_path(x.weights).string();
  auto data = build_data_for(job, path);
  const auto context = with_job_lines(x.job, x.overrides,
                                      [&] { return make_job_context(job, shape_of(*data.train)); });
  // Memory for the weights file, the weights, and the ONNX model.
  check_memory(memory_problem(3 * context->parameters().size() * sizeof(float)),
               "export on a host with more memory");
  const auto weights = read_model(read_file(path), context->parameters(), path);
  require_finite(context->parameters(), weights.weights, path);
  data = as_trained(std::move(data), weights.info.more, path);
  const auto& model = context->model;
  onnx_surroundings around;
  around.features = data.normalization;
  around.int64_tokens = reads_int64(job.model());
  around.metadata = metadata_of(data);
  if (around.metadata.contains("target_mean"))
    around.targets = data.scaling;
  // The model may already contain a scaling, from an earlier export.
  around.metadata.merge(scaling_of_onnx(job.model()));
  const auto exported =
    export_onnx(model.features, model.output, weights.weights, job.name(), around);
  try {
    disk_storage{}.replace(x.output, as_byte_span(exported.bytes));
  } catch (const std::system_error& error) {
    throw input_error{"--output=" + x.output + ": " + error.what()};
  }
  const auto line = [](const char* what, const std::string& value) {
    fmt::print("  {:<20}{}\n", what, value);
  };
  line("weights", fmt::format("{}, version {}", path, weights.info.version));
  line("model", fmt::format("{}: ONNX, {}", x.output, readable_bytes(exported.bytes.size())));
  line("input", fmt::format("{} {}", exported.input, to_string(model.features.shape())));
  line("output", fmt::format("{} {}", exported.output, to_string(model.output.shape())));
  if (around.metadata.contains("feature_mean"))
    line("",
         std::string{"(feed it with unscaled features: the model normalizes them"}
           + (around.metadata.contains("target_mean")
                ? ", and its output is in the units of the data)"
                : ")"));
  if (job.data().has_csv())
    print_rounded(data);
  if (job.data().has_idx() || job.data().has_digits() || job.data().has_image_folder())
    line("", "(of bytes of pixels x, feed it with x / 255)");
  else if ((job.data().has_npy() || job.data().has_npz())
           && data.train->record().features == feature_kind::numbers)
    line("", "(of features x of uint8, feed it with x / 255)");
  if (job.model().loss() == proto::SOFTMAX_CROSS_ENTROPY
      || job.model().loss() == proto::BINARY_CROSS_ENTROPY)
    line("",
         job.model().loss() == proto::SOFTMAX_CROSS_ENTROPY
           ? "(outputs are logits: softmax turns them into probabilities)"
           : "(outputs are logits: the sigmoid turns them into probabilities)");
  return exit_done;
}

} // namespace troupe
