#include "actors/model/model_builder.hpp"

#include "actors/model/job_file.hpp"
#include "kernels/error.hpp"
#include "kernels/image_operations.hpp"
#include "kernels/operations.hpp"

#include <string>
#include <utility>

namespace troupe {

namespace {

activation activation_of(proto::Activation how) {
  switch (how) {
  case proto::NONE:
    return activation::none;
  case proto::RELU:
    return activation::relu;
  case proto::TANH:
    return activation::tanh;
  case proto::SIGMOID:
    return activation::sigmoid;
  }
  return activation::none;
}

expression add_layer(expression x, const proto::Model& model, int index) {
  const auto& layer = model.layer(index);
  const std::string name = layer_name(model, index);
  if (!layer.has_dense() || layer.dense().units() == 0)
    throw input_error("layer \"" + name + "\": expected a kind, such as dense { units: 10 }");
  const auto& dense = layer.dense();
  return dense_layer(x.shape().rank() == 4 ? flatten(x) : x, name, dense.units(),
                     activation_of(dense.activation()), dense.bias());
}

/// Throws where the last layer does not fit the labels.
void check_labels(const proto::Model& model, label_kind labels, std::size_t width) {
  const std::string name = layer_name(model, model.layer_size() - 1);
  const std::size_t units = model.layer(model.layer_size() - 1).dense().units();
  const bool softmax = model.loss() == proto::SOFTMAX_CROSS_ENTROPY;
  if (softmax && labels != label_kind::classes)
    throw input_error("model.loss: SOFTMAX_CROSS_ENTROPY needs classes, but the data has "
                      + std::to_string(width) + " targets per sample; use MEAN_SQUARED_ERROR");
  if (!softmax && labels != label_kind::targets)
    throw input_error("model.loss: MEAN_SQUARED_ERROR needs targets, but the data has classes; use "
                      "SOFTMAX_CROSS_ENTROPY");
  if (softmax && width > units)
    throw input_error("layer \"" + name + "\" has " + std::to_string(units)
                      + " units, but the data has " + std::to_string(width)
                      + " classes; expected at least a unit per class");
  if (!softmax && width != units)
    throw input_error("layer \"" + name + "\" has " + std::to_string(units)
                      + " units, but the data has " + std::to_string(width)
                      + " targets per sample; expected as many");
}

shape per_sample(const shape& dims) {
  auto extents = dims.extents();
  extents.insert(extents.begin(), shape::batch);
  return shape{std::move(extents)};
}

shape label_dims(const record_shape& data) {
  const bool one = data.labels == label_kind::classes && data.labels_per_record == 1;
  return one ? shape{} : shape{static_cast<std::int64_t>(data.label_elements())};
}

} // namespace

built_model build_model(const proto::Model& model, const record_shape& data) {
  if (model.layer_size() == 0)
    throw input_error("model.layer: no layers; add at least one");
  if (model.loss() == proto::LOSS_UNSET)
    throw input_error("model.loss: missing; expected SOFTMAX_CROSS_ENTROPY or MEAN_SQUARED_ERROR");
  if (data.feature_width() == 0)
    throw input_error("data: no features per sample; expected at least one");
  check_labels(model, data.labels, data.label_width);
  built_model result;
  result.graph = std::make_unique<graph>();
  auto& g = *result.graph;
  result.features =
    g.placeholder("features", per_sample(data.dims),
                  data.features == feature_kind::tokens ? dtype::int32 : dtype::float32);
  result.labels = g.placeholder("labels", per_sample(label_dims(data)),
                                data.labels == label_kind::classes ? dtype::int32 : dtype::float32);
  result.output = result.features;
  for (int i = 0; i < model.layer_size(); ++i)
    result.output = add_layer(result.output, model, i);
  if (data.labels == label_kind::classes) {
    result.loss = softmax_cross_entropy(result.output, result.labels);
    result.correct = softmax_correct(result.output, result.labels);
  } else {
    result.loss = mean_squared_error(result.output, result.labels);
  }
  return result;
}

bool is_linear(const proto::Model& model) {
  return model.layer_size() == 1 && model.layer(0).has_dense()
    && model.layer(0).dense().activation() == proto::NONE
    && model.loss() == proto::MEAN_SQUARED_ERROR;
}

} // namespace troupe
