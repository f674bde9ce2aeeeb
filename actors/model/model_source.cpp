#include "actors/model/model_source.hpp"

#include "actors/model/job_file.hpp"
#include "actors/model/model_file.hpp"
#include "actors/model/onnx/importer.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "kernels/formats/gzip.hpp"
#include "kernels/formats/printable.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/initializers.hpp"
#include "kernels/graph/orthogonal.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace troupe {

namespace {

/// Largest structure of an ONNX model, as it is stored in a job.
constexpr std::size_t most_structure = std::size_t{2} << 20;
/// A structure of at most this size is not compressed.
constexpr std::size_t plain_structure = std::size_t{64} << 10;
/// Largest structure before it is compressed.
constexpr std::size_t most_unpacked = std::size_t{1} << 30;

std::string path_of(const proto::Model& model) {
  return expand_environment(model.onnx(), "model.onnx");
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string names_of(const std::vector<std::string>& names) {
  std::string result;
  for (const auto& name : names)
    result += (result.empty() ? "" : ", ") + ("\"" + name + "\"");
  return result.empty() ? "none" : result;
}

/// The input of a model. Throws if the model has several inputs.
onnx_port only_input(const onnx_model& model) {
  const auto ports = onnx_inputs(model);
  std::vector<std::string> names;
  for (const auto& port : ports)
    names.push_back(port.name);
  if (ports.size() != 1)
    throw input_error(model.name() + ": expected one input, the features; it has "
                      + names_of(names));
  return ports[0];
}

/// The shape in which the features go into the model. If the input leaves the extent of a dimension
/// open (-1), the features determine this extent.
shape fed_shape(const onnx_model& model, const onnx_port& port, const shape& features) {
  const auto refuse = [&](const std::string& what) {
    auto text = std::string{"("};
    for (std::size_t i = 0; i < port.dims.size(); ++i)
      text += (i > 0 ? ", " : "") + (port.dims[i] < 0 ? "?" : std::to_string(port.dims[i]));
    throw input_error(model.name() + ": input \"" + port.name + "\" " + text + ") " + what
                      + " the data's features, " + to_string(features));
  };
  if (port.dims.empty())
    refuse("has no batch dimension, unlike");
  auto extents = port.dims;
  extents[0] = shape::batch;
  std::size_t open = 0;
  for (std::size_t i = 1; i < extents.size(); ++i)
    open += extents[i] < 0 ? 1 : 0;
  if (open > 1 && extents.size() != features.rank())
    refuse("has several open dimensions, and not as many dimensions as");
  auto rest = static_cast<std::int64_t>(features.elements(1));
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i] < 0 && extents.size() == features.rank())
      extents[i] = features[i];
    if (extents[i] == 0 || (extents[i] > 0 && rest % extents[i] != 0))
      refuse("does not fit");
    rest /= extents[i] > 0 ? extents[i] : 1;
  }
  for (auto& extent : extents)
    if (&extent != extents.data() && extent < 0)
      extent = std::exchange(rest, 1);
  if (rest != 1)
    refuse("differs in its number of elements from");
  return shape{std::move(extents)};
}

/// The entries of an ONNX file that describe the scaling in its model. Empty if it is no such file.
std::map<std::string, std::string> scaling_entries(std::span<const std::byte> bytes) {
  std::map<std::string, std::string> result;
  onnx::ModelProto model;
  if (!model.ParseFromArray(
        bytes.data(),
        static_cast<int>(std::min<std::size_t>(bytes.size(), std::numeric_limits<int>::max()))))
    return result;
  for (const auto& entry : model.metadata_props())
    if (entry.key().starts_with("feature_") || entry.key().starts_with("target_"))
      result.emplace(entry.key(), entry.value());
  return result;
}

/// A model from `troupe export` normalizes the data itself. The data must then not be normalized a
/// second time.
void refuse_two_normalizations(const proto::Data& data, std::span<const std::byte> bytes,
                               const std::string& path) {
  const bool normalizes = data.has_normalize() || data.csv().standardize();
  if (normalizes && scaling_entries(bytes).contains("feature_mean"))
    throw input_error("model.onnx: " + path + " normalizes the features itself (troupe export); "
                      + "leave out "
                      + (data.has_csv() ? "data.csv.standardize" : "data.normalize"));
}

} // namespace

std::map<std::string, std::string> scaling_of_onnx(const proto::Model& model) {
  return model.onnx().empty() ? std::map<std::string, std::string>{}
                              : scaling_entries(read_file(path_of(model)));
}

void embed_onnx(proto::Job& job) {
  auto& model = *job.mutable_model();
  model.clear_onnx_structure();
  if (model.onnx().empty())
    return;
  const auto path = path_of(model);
  const auto bytes = read_file(path);
  refuse_two_normalizations(job.data(), bytes, path);
  const auto source = onnx_model::read(path);
  source.require_finite();
  auto structure = source.structure();
  const auto size = structure.size();
  if (size > plain_structure && size <= most_unpacked)
    structure = as_text(gzip(as_byte_span(structure)));
  if (structure.size() > most_structure)
    throw input_error(path + ": besides its weights, the model has " + std::to_string(size)
                      + " bytes of constants and nodes (compressed: "
                      + (size > most_unpacked ? "not tried" : std::to_string(structure.size()))
                      + "); at most 2 MiB are accepted after compression. Compute large constants "
                        "in the model, for example with torch.arange or torch.tril");
  model.set_onnx_structure(std::move(structure));
}

std::string onnx_structure_of(const proto::Model& model) {
  const auto& stored = model.onnx_structure();
  if (!is_gzip(as_byte_span(stored)))
    return stored;
  return as_text(gunzip(as_byte_span(stored), most_unpacked, model.onnx()));
}

proto::Job without_structure(const proto::Job& job) {
  auto result = job;
  if (result.has_model())
    result.mutable_model()->clear_onnx_structure();
  return result;
}

onnx_head add_onnx(const proto::Model& model, expression features, parameter_choice& choice) {
  const auto bytes = onnx_structure_of(model);
  if (bytes.empty())
    throw input_error("model.onnx: " + model.onnx() + " has not been read");
  const auto source = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), model.onnx());
  const auto port = only_input(source);
  if (port.type != features.node().type)
    throw input_error(source.name() + ": input \"" + port.name + "\" takes "
                      + (port.type == dtype::int32
                           ? "whole numbers, but the data's features are real"
                           : features.node().type == dtype::int32
                           ? "real numbers, but the data's features are tokens"
                           : "dense features, but the data's features are sparse"));
  const auto dims = fed_shape(source, port, features.shape());
  const auto input = dims == features.shape() ? features : reshape(features, dims);
  const auto kind_of = [&](const onnx_model::weight& x) {
    return choice.kind_of(x.name, x.decay ? parameter_kind::state : parameter_kind::trainable,
                          x.stays);
  };
  const auto outputs = import_onnx(source, features.owner(), {input}, false, kind_of);
  if (outputs.size() != 1)
    throw input_error(source.name() + ": expected one output; it has "
                      + names_of(onnx_outputs(source)));
  if (!outputs[0].x.shape().has_batch())
    throw input_error(source.name() + ": output \"" + onnx_outputs(source)[0] + "\" has shape "
                      + to_string(outputs[0].x.shape()) + "; expected (batch, units)");
  // One number per sample counts as one unit.
  const auto in_units = [](expression x) {
    return x.shape().rank() == 1 ? reshape(x, {shape::batch, 1}) : x;
  };
  const auto result = in_units(outputs[0].x);
  if (!differs_in_training(source))
    return {result, result};
  const auto training = import_onnx(source, features.owner(), {input}, true, kind_of);
  return {in_units(training[0].x), result};
}

namespace {

std::vector<float> weights_of_onnx(const proto::Model& model, const layout& parameters) {
  const auto path = path_of(model);
  const auto source = onnx_model::read(path);
  if (source.structure() != onnx_structure_of(model))
    throw input_error(path + ": has changed since the job was read");
  auto weights = source.values(parameters);
  require_finite(parameters, weights, path);
  return weights;
}

tensor_choice choice_of(const proto::PartialWeights& how) {
  tensor_choice result{
    {how.only().begin(), how.only().end()}, {how.except().begin(), how.except().end()}, {}};
  for (const auto& x : how.rename())
    result.renames.emplace_back(x.model(), x.file());
  return result;
}

/// Makes a text from a beginning and at most 20 names: "BEFORE: a, b, ...".
std::string listed(const std::string& before, const std::vector<std::string>& names) {
  constexpr std::size_t most_named = 20;
  auto text = before + ": ";
  for (std::size_t i = 0; i < std::min(names.size(), most_named); ++i)
    text += (i > 0 ? ", " : "") + excerpt(names[i]);
  return text + (names.size() > most_named ? ", ..." : "");
}

std::string counted(std::size_t n, const std::string& what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

} // namespace

std::optional<std::vector<float>> initial_weights(const proto::Job& job, const layout& parameters,
                                                  std::vector<std::string>& notices) {
  const auto& model = job.model();
  std::optional<std::vector<float>> result;
  if (!model.onnx().empty() && (model.initial_weights().empty() || model.has_partial_weights()))
    result = weights_of_onnx(model, parameters);
  if (model.initial_weights().empty())
    return result;
  const auto path =
    weights_path(expand_environment(model.initial_weights(), "model.initial_weights")).string();
  const auto file = read_file(path);
  std::size_t counters = 0;
  if (model.has_partial_weights()) {
    if (!result) {
      result.emplace(parameters.size());
      orthogonal_matrices orthogonal;
      initialize(parameters, {0, parameters.size()}, job.seed(), *result, &orthogonal);
    }
    const auto left =
      read_tensors(file, parameters, choice_of(model.partial_weights()), *result, path);
    notices.push_back(path + ": " + std::to_string(left.taken) + " of "
                      + std::to_string(parameters.entries().size())
                      + " tensors of the model are taken from it");
    if (!left.missing.empty())
      notices.push_back(listed(path + ": " + counted(left.missing.size(), "tensor")
                                 + " missing in it, so the model keeps the initial values",
                               left.missing));
    if (!left.unused.empty())
      notices.push_back(listed(
        path + ": " + counted(left.unused.size(), "tensor") + " of it not used", left.unused));
    counters = left.counters;
  } else {
    auto contents = read_model(file, parameters, path);
    result = std::move(contents.weights);
    counters = contents.counters;
  }
  if (counters > 0)
    notices.push_back(path + ": " + counted(counters, "counter")
                      + " \"*.num_batches_tracked\" skipped: nothing reads them");
  require_finite(parameters, *result, path);
  return result;
}

} // namespace troupe
