#include "actors/model/model_builder.hpp"

#include "actors/model/layer_builder.hpp"
#include "actors/model/layer_list.hpp"
#include "actors/model/model_source.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/operations.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace troupe {

namespace {

std::string units_text(const shape& output) {
  return "makes " + to_string(output) + " of each batch";
}

/// Builds the loss and its labels, and checks that they fit together.
class loss_builder {
public:
  /// @param layer the layer that produces the output, for messages
  /// @param line the line of this layer in the job file, for messages
  loss_builder(const proto::Model& model, const record_shape& data, std::string layer,
               std::string line)
    : model_(model), data_(data), layer_(std::move(layer)), line_(std::move(line)) {}

  void add(built_model& result, const layer_output& output) const {
    check_kind();
    if (model_.loss() == proto::SOFTMAX_CROSS_ENTROPY)
      return add_softmax(result, output);
    if (data_.labels == label_kind::classes)
      return add_two_classes(result, output);
    check_targets(output.testing.shape());
    result.loss = of_targets(output.testing, result.labels);
    result.training_loss = output.same() ? result.loss : of_targets(output.training, result.labels);
  }

private:
  std::string name() const { return proto::Loss_Name(model_.loss()); }

  void check_kind() const {
    const bool two = model_.loss() == proto::BINARY_CROSS_ENTROPY || model_.loss() == proto::HINGE;
    const bool softmax = model_.loss() == proto::SOFTMAX_CROSS_ENTROPY;
    if (softmax && data_.labels != label_kind::classes)
      throw input_error("model.loss: SOFTMAX_CROSS_ENTROPY needs classes, but the data has targets "
                        "(numbers to predict), "
                        + std::to_string(data_.label_width)
                        + " per sample. For targets, use MEAN_SQUARED_ERROR; classes are labels of "
                          "a whole-number type and shape (records) in arrays, such as "
                          "y.astype(\"<i4\").ravel(), and data.csv.label in tables");
    if (!softmax && !two && data_.labels != label_kind::targets)
      throw input_error("model.loss: " + name()
                        + " needs targets, but the data has classes; for classes, use "
                          "SOFTMAX_CROSS_ENTROPY. Targets are labels of a floating-point type in "
                          "arrays, such as y.astype(\"<f4\"), and data.csv.target in tables");
    if (two && data_.labels == label_kind::classes
        && (data_.label_width > 2 || data_.labels_per_record != 1))
      throw input_error("model.loss: " + name() + " needs two classes, but the data has "
                        + std::to_string(data_.label_width)
                        + (data_.labels_per_record != 1 ? " at several positions" : "")
                        + "; use SOFTMAX_CROSS_ENTROPY");
  }

  void add_softmax(built_model& result, const layer_output& output) const {
    const auto dims = output.testing.shape();
    const auto labels = result.labels.shape();
    const auto units = static_cast<std::size_t>(dims.last());
    const bool fits = dims.rank() == labels.rank() + 1
      && std::equal(labels.extents().begin(), labels.extents().end(), dims.extents().begin());
    if (!fits)
      throw input_error(layer_ + " " + units_text(dims) + ", but the data has labels "
                        + to_string(labels) + "; expected logits for each label"
                        + hint(dims, labels) + line_);
    if (data_.label_width > units)
      throw input_error(layer_ + " has " + std::to_string(units) + " units, but the data has "
                        + std::to_string(data_.label_width)
                        + " classes; expected at least a unit per class" + line_);
    cross_entropy how;
    how.smoothing = model_.label_smoothing();
    if (model_.has_ignored_label())
      how.ignored = model_.ignored_label();
    result.training_loss = softmax_cross_entropy(output.training, result.labels, how);
    result.loss = output.same() ? result.training_loss
                                : softmax_cross_entropy(output.testing, result.labels, how);
    result.correct = softmax_correct(output.testing, result.labels, how);
  }

  /// What to do if the logits do not fit the labels.
  std::string hint(const shape& logits, const shape& labels) const {
    if (model_.has_onnx_structure())
      return labels.rank() == 1
        ? ". For one label per record, the model must return (batch, classes)"
        : ". The model must return (batch, labels, classes): classes last, as in "
          "y.flatten(2).transpose(1, 2)";
    return logits.rank() > labels.rank() + 1
      ? ". To use a record as one vector, begin with layer { flatten {} }"
      : "";
  }

  /// Builds a loss for two classes. The two classes become the targets 0 and 1 of a single output
  /// (-1 and 1 for HINGE).
  void add_two_classes(built_model& result, const layer_output& output) const {
    const auto dims = output.testing.shape();
    if (dims != shape{shape::batch, 1})
      throw input_error(layer_ + " " + units_text(dims) + "; " + name()
                        + " of two classes needs one unit" + line_);
    auto targets = to_float(result.labels, dims);
    if (model_.loss() == proto::HINGE)
      targets = offset(scale(targets, 2), -1);
    result.loss = of_targets(output.testing, targets);
    result.training_loss = output.same() ? result.loss : of_targets(output.training, targets);
    result.correct = binary_correct(output.testing, result.labels);
  }

  void check_targets(const shape& output) const {
    const shape expected{shape::batch, static_cast<std::int64_t>(data_.label_width)};
    if (output == expected)
      return;
    if (output.rank() == 2)
      throw input_error(layer_ + " has " + std::to_string(output.last())
                        + " units, but the data has " + std::to_string(data_.label_width)
                        + (data_.label_width == 1 ? " target" : " targets")
                        + " per sample; expected the same number" + line_);
    throw input_error(layer_ + " " + units_text(output) + ", but the data has targets "
                      + to_string(expected) + "; expected the same" + line_);
  }

  expression of_targets(expression output, expression targets) const {
    switch (model_.loss()) {
    case proto::BINARY_CROSS_ENTROPY:
      return binary_cross_entropy(output, targets);
    case proto::MEAN_ABSOLUTE_ERROR:
      return mean_absolute_error(output, targets);
    case proto::HINGE:
      return hinge(output, targets);
    default:
      return mean_squared_error(output, targets);
    }
  }

  const proto::Model& model_;
  const record_shape& data_;
  std::string layer_;
  std::string line_;
};

shape per_sample(const shape& dims) {
  auto extents = dims.extents();
  extents.insert(extents.begin(), shape::batch);
  return shape{std::move(extents)};
}

dtype feature_type(feature_kind kind) {
  switch (kind) {
  case feature_kind::numbers:
    return dtype::float32;
  case feature_kind::tokens:
    return dtype::int32;
  case feature_kind::sparse:
    return dtype::sparse;
  }
  return dtype::float32;
}

shape label_dims(const record_shape& data) {
  const bool one = data.labels == label_kind::classes && data.labels_per_record == 1;
  return one ? shape{} : shape{static_cast<std::int64_t>(data.label_elements())};
}

/// The activation of a layer; NONE if it has none.
proto::Activation activation_of(const proto::Layer& layer) {
  if (layer.has_dense())
    return layer.dense().activation();
  if (layer.has_conv2d())
    return layer.conv2d().activation();
  if (layer.has_conv_transpose2d())
    return layer.conv_transpose2d().activation();
  return layer.has_activation() ? layer.activation() : proto::NONE;
}

/// The kind and the activation of a layer, such as "conv2d relu".
std::string kind_in_words(const proto::Layer& layer) {
  const auto activation = activation_of(layer);
  auto result = layer_kind(layer);
  if (layer.batch_norm().sync())
    result += " of all workers";
  if (activation != proto::NONE)
    result += " " + proto::Activation_Name(activation);
  for (auto& c : result)
    c = c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Describes a layer for `troupe check`. The layer's variables begin at `first`.
built_layer describe(const listed_layer& layer, std::span<const layer_output> inputs,
                     const layer_output& output, const layout& parameters, std::size_t first) {
  built_layer result;
  result.name = layer.name;
  result.kind = kind_in_words(*layer.layer);
  for (const auto& input : inputs)
    result.inputs.push_back(input.testing.shape());
  result.output = output.testing.shape();
  for (auto i = first; i < parameters.entries().size(); ++i)
    result.parameters += parameters.entries()[i].size;
  return result;
}

void build_from_layers(const proto::Model& model, const record_shape& data,
                       parameter_choice& choice, built_model& result) {
  auto& g = *result.graph;
  const auto layers = list_layers(model);
  layer_builder builder{g, data.features == feature_kind::tokens ? data.vocabulary : 0, choice};
  std::vector<layer_output> outputs{{result.features, result.features}};
  for (const auto& layer : layers) {
    std::vector<layer_output> inputs;
    for (auto input : layer.inputs)
      inputs.push_back(outputs[input]);
    const auto first = g.parameters().entries().size();
    outputs.push_back(builder.add(layer, inputs));
    result.layers.push_back(describe(layer, inputs, outputs.back(), g.parameters(), first));
  }
  result.output = outputs.back().testing;
  const auto& last = layers.back();
  loss_builder{model, data, "layer \"" + last.name + "\"", at_line(*last.layer)}.add(
    result, outputs.back());
}

void build_from_onnx(const proto::Model& model, const record_shape& data, parameter_choice& choice,
                     built_model& result) {
  const auto head = add_onnx(model, result.features, choice);
  result.output = head.testing;
  result.layers.push_back({"onnx",
                           "onnx",
                           {result.features.shape()},
                           result.output.shape(),
                           result.graph->parameters().size()});
  loss_builder{model, data, "the model of " + model.onnx(), ""}.add(result,
                                                                    {head.training, head.testing});
}

} // namespace

built_model build_model(const proto::Model& model, const record_shape& data) {
  if (model.layer_size() == 0 && !model.has_onnx_structure())
    throw input_error("model.layer: no layers; add at least one");
  if (model.loss() == proto::LOSS_UNSET)
    throw input_error("model.loss: missing; expected one of " + loss_names());
  if (data.feature_width() == 0)
    throw input_error("data: no features per sample; expected at least one");
  built_model result;
  result.graph = std::make_unique<graph>();
  auto& g = *result.graph;
  result.features = g.placeholder("features", per_sample(data.dims), feature_type(data.features));
  result.labels = g.placeholder("labels", per_sample(label_dims(data)),
                                data.labels == label_kind::classes ? dtype::int32 : dtype::float32);
  parameter_choice choice{model};
  if (model.has_onnx_structure())
    build_from_onnx(model, data, choice, result);
  else
    build_from_layers(model, data, choice, result);
  choice.check();
  result.frozen = choice.frozen();
  return result;
}

std::string logits_notice(const proto::Model& model) {
  const auto loss = model.loss();
  const bool softmax_loss = loss == proto::SOFTMAX_CROSS_ENTROPY;
  if (model.layer_size() == 0
      || (!softmax_loss && loss != proto::BINARY_CROSS_ENTROPY && loss != proto::HINGE))
    return "";
  const auto last = list_layers(model).back();
  const auto activation = activation_of(*last.layer);
  const bool softmax = last.layer->has_softmax();
  if (!softmax && activation != proto::RELU && activation != proto::SIGMOID)
    return "";
  const std::string kind = softmax ? "softmax" : proto::Activation_Name(activation);
  const bool twice =
    softmax_loss ? softmax : loss == proto::BINARY_CROSS_ENTROPY && activation == proto::SIGMOID;
  return "the last layer, \"" + last.name + "\", has outputs of "
    + (activation == proto::RELU ? "0 or more" : "0 to 1") + " (" + kind + "), but "
    + proto::Loss_Name(loss)
    + (loss == proto::HINGE ? " needs outputs below 0, too"
                            : " takes logits, which are any numbers")
    + (twice ? ", and applies the " + std::string{softmax ? "softmax" : "sigmoid"} + " itself" : "")
    + "; leave out the " + (softmax || last.layer->has_activation() ? "layer" : "activation")
    + at_line(*last.layer);
}

std::string loss_names() {
  return "SOFTMAX_CROSS_ENTROPY, MEAN_SQUARED_ERROR, BINARY_CROSS_ENTROPY, MEAN_ABSOLUTE_ERROR, "
         "HINGE";
}

bool is_linear(const proto::Model& model) {
  return model.layer_size() == 1 && model.layer(0).has_dense()
    && model.layer(0).dense().activation() == proto::NONE
    && model.loss() == proto::MEAN_SQUARED_ERROR;
}

} // namespace troupe
