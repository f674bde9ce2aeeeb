#include "actors/model/layer_builder.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/graph/sparse_operations.hpp"

#include <utility>
#include <vector>

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
  case proto::LEAKY_RELU:
    return activation::leaky_relu;
  case proto::GELU:
    return activation::gelu;
  case proto::SILU:
    break;
  }
  return activation::none;
}

initializer initializer_of(bool given, const proto::Initializer& x, initializer otherwise) {
  if (!given)
    return otherwise;
  switch (x.kind_case()) {
  case proto::Initializer::kConstant:
    return initializer::constant(x.constant().value());
  case proto::Initializer::kGlorotUniform:
    return initializer::glorot_uniform();
  case proto::Initializer::kHeUniform:
    return initializer::he_uniform();
  case proto::Initializer::kHeNormal:
    return initializer::he_normal();
  case proto::Initializer::kGlorotNormal:
    return initializer::glorot_normal();
  case proto::Initializer::kNormal:
    return initializer::normal(x.normal().deviation());
  case proto::Initializer::kUniform:
    return initializer::uniform(x.uniform().bound());
  case proto::Initializer::kOrthogonal:
    return initializer::orthogonal(x.orthogonal().gain());
  case proto::Initializer::KIND_NOT_SET:
    break;
  }
  return otherwise;
}

/// Kernel, stride and padding of a convolution or pooling. A stride of 0 means that the stride
/// equals the kernel.
template <class Layer>
window window_of(const Layer& x, std::int64_t stride) {
  const auto pair = [](const auto& list, std::int64_t y, std::int64_t x) {
    if (list.size() == 0)
      return std::pair{y, x};
    return std::pair<std::int64_t, std::int64_t>{list[0], list[list.size() - 1]};
  };
  window result;
  std::tie(result.height, result.width) = pair(x.kernel(), 1, 1);
  std::tie(result.stride_y, result.stride_x) =
    pair(x.stride(), stride > 0 ? stride : result.height, stride > 0 ? stride : result.width);
  std::tie(result.pad_y, result.pad_x) = pair(x.padding(), 0, 0);
  return result;
}

shape with_batch(const google::protobuf::RepeatedField<std::uint32_t>& dims) {
  std::vector<std::int64_t> extents{shape::batch};
  extents.insert(extents.end(), dims.begin(), dims.end());
  return shape{std::move(extents)};
}

/// Throws if x does not have this axis, or if the axis is the batch.
void check_axis(expression x, std::size_t axis) {
  if (axis == 0 || axis >= x.shape().rank())
    throw input_error("axis " + std::to_string(axis) + " is "
                      + (axis == 0 ? "the batch" : "out of range"));
}

expression reduce(expression x, std::size_t axis, bool mean) {
  check_axis(x, axis);
  const auto extent = x.shape()[axis];
  const auto rank = x.shape().rank();
  if (axis + 1 != rank) {
    std::vector<std::size_t> axes;
    for (std::size_t i = 0; i < rank; ++i)
      if (i != axis)
        axes.push_back(i);
    axes.push_back(axis);
    x = transpose(x, axes);
  }
  x = sum_last(x);
  return mean && extent > 0 ? scale(x, 1 / static_cast<double>(extent)) : x;
}

void check_sequence(expression x) {
  if (x.shape().rank() != 3)
    throw input_error("expected a sequence (batch, time, features)");
}

} // namespace

// -- the frame ----------------------------------------------------------------------------------

layer_output layer_builder::add(const listed_layer& layer, std::span<const layer_output> inputs) {
  name_ = layer.name;
  std::vector<expression> training;
  std::vector<expression> testing;
  for (const auto& input : inputs) {
    training.push_back(input.training);
    testing.push_back(input.testing);
  }
  const auto made = [&](std::span<const expression> from, bool is_training) {
    try {
      const auto result = build(*layer.layer, from, is_training);
      // A layer that passes its input through, such as dropout when testing, keeps the name of the
      // input.
      if (std::ranges::find(from, result) == from.end())
        graph_.rename(result, is_training ? name_ + "/training" : name_);
      return result;
    } catch (const input_error& error) {
      std::string text = layer.path + ": layer \"" + layer.name + "\" cannot read ";
      for (std::size_t i = 0; i < from.size(); ++i)
        text += (i == 0                   ? ""
                   : i + 1 == from.size() ? " and "
                                          : ", ")
          + ("\"" + testing[i].name()) + "\" " + to_string(from[i].shape());
      throw input_error(text + ": " + error.what() + at_line(*layer.layer));
    }
  };
  const bool differs = layer.layer->has_batch_norm() || layer.layer->has_dropout();
  layer_output result;
  result.testing = made(testing, false);
  result.training = differs || training != testing ? made(training, true) : result.testing;
  return result;
}

expression layer_builder::variable(const std::string& tensor, const shape& dims,
                                   const initializer& initial, parameter_kind kind, double decay) {
  const auto full = name_ + "." + tensor;
  if (const auto known = variables_.find(full); known != variables_.end())
    return known->second;
  const auto result = graph_.variable(full, dims, initial, choice_.kind_of(full, kind), decay);
  variables_.emplace(full, result);
  return result;
}

expression layer_builder::build(const proto::Layer& layer, std::span<const expression> inputs,
                                bool training) {
  const auto x = inputs[0];
  switch (layer.kind_case()) {
  case proto::Layer::kDense: {
    const auto& how = layer.dense();
    const auto after = activation_of(how.activation());
    const bool sparse = x.node().type == dtype::sparse;
    const auto usual = sparse ? initializer::glorot_uniform() : initial_weights(after);
    auto weights = initializer_of(how.has_weights(), how.weights(), usual);
    weights.inputs_first = sparse; // (inputs, units), so that each feature has a row
    const auto flat = x.shape().rank() == 4 ? flatten(x) : x;
    return activate(dense(flat, "weight", how.units(), weights, how.bias(), "bias"), after);
  }
  case proto::Layer::kFlatten:
    return flatten(x);
  case proto::Layer::kReshape:
    return reshape(x, with_batch(layer.reshape().dims()));
  case proto::Layer::kDropout:
    return training ? dropout(x, layer.dropout().rate(), name_) : x;
  case proto::Layer::kActivation:
    return activate(x, activation_of(layer.activation()));
  case proto::Layer::kSoftmax:
    return softmax(x);
  case proto::Layer::kConv2D:
  case proto::Layer::kMaxPool:
  case proto::Layer::kAveragePool:
  case proto::Layer::kGlobalAveragePool:
  case proto::Layer::kBatchNorm:
    return build_image(layer, x, training);
  case proto::Layer::kAdd:
  case proto::Layer::kMultiply:
  case proto::Layer::kConcat:
  case proto::Layer::kMatmul:
    return build_combination(layer, inputs);
  default:
    return build_sequence(layer, x);
  }
}

expression layer_builder::dense(expression x, const std::string& tensor, std::int64_t units,
                                const initializer& weights, bool bias,
                                const std::string& bias_tensor) {
  if (x.shape().rank() < 2)
    throw input_error("expected a tensor (batch, ..., features)");
  const auto inputs = x.shape().last();
  const auto y = x.node().type == dtype::sparse
    ? sparse_matmul(x, variable(tensor, {inputs, units}, weights))
    : troupe::dense(x, variable(tensor, {units, inputs}, weights));
  return bias ? add_bias(y, variable(bias_tensor, {units})) : y;
}

// -- images -------------------------------------------------------------------------------------

expression layer_builder::build_image(const proto::Layer& layer, expression x, bool training) {
  switch (layer.kind_case()) {
  case proto::Layer::kConv2D:
    return convolution(x, layer.conv2d());
  case proto::Layer::kMaxPool:
    return max_pool(x, window_of(layer.max_pool(), 0));
  case proto::Layer::kAveragePool:
    return average_pool(x, window_of(layer.average_pool(), 0));
  case proto::Layer::kGlobalAveragePool:
    return flatten(global_average_pool(x));
  default:
    return normalized_batch(x, layer.batch_norm(), training);
  }
}

expression layer_builder::convolution(expression x, const proto::Conv2d& how) {
  if (x.shape().rank() != 4)
    throw input_error("expected images (batch, channels, height, width)");
  auto window = window_of(how, 1);
  window.groups = how.groups();
  const auto channels = x.shape()[1];
  const std::int64_t filters = how.filters();
  if (channels % window.groups != 0 || filters % window.groups != 0)
    throw input_error(std::to_string(window.groups) + " groups do not divide "
                      + std::to_string(channels) + " channels and " + std::to_string(filters)
                      + " filters");
  const auto after = activation_of(how.activation());
  const auto weights = initializer_of(how.has_weights(), how.weights(), initial_weights(after));
  const shape dims{filters, channels / window.groups, window.height, window.width};
  auto y = conv2d(x, variable("weight", dims, weights), window);
  if (how.bias())
    y = add_channel_bias(y, variable("bias", {filters}));
  return activate(y, after);
}

expression layer_builder::normalized_batch(expression x, const proto::BatchNorm& how,
                                           bool training) {
  if (x.shape().rank() < 2)
    throw input_error("expected a tensor (batch, channels, ...)");
  const shape dims{x.shape()[1]};
  batch_norm_variables variables;
  variables.gain = variable("weight", dims, initializer::constant(1));
  variables.bias = variable("bias", dims);
  variables.running_mean =
    variable("running_mean", dims, initializer::zeros(), parameter_kind::state, how.momentum());
  variables.running_variance =
    variable("running_var", dims, initializer::constant(1), parameter_kind::state, how.momentum());
  return training ? batch_norm(x, variables, how.epsilon(), how.sync())
                  : batch_norm_testing(x, variables, how.epsilon());
}

// -- several inputs -----------------------------------------------------------------------------

expression layer_builder::build_combination(const proto::Layer& layer,
                                            std::span<const expression> inputs) {
  if (layer.has_concat()) {
    check_axis(inputs[0], layer.concat().axis());
    return concat({inputs.begin(), inputs.end()}, layer.concat().axis());
  }
  if (layer.has_matmul())
    return batched_matmul(inputs[0], inputs[1], layer.matmul().transpose_a(),
                          layer.matmul().transpose_b());
  auto result = inputs[0];
  for (auto next : inputs.subspan(1))
    result = layer.has_add() ? result + next : result * next;
  return result;
}

// -- sequences ----------------------------------------------------------------------------------

expression layer_builder::build_sequence(const proto::Layer& layer, expression x) {
  switch (layer.kind_case()) {
  case proto::Layer::kLayerNorm: {
    const shape dims{x.shape().last()};
    const auto gain = variable("weight", dims, initializer::constant(1));
    return layer_norm(x, gain, variable("bias", dims), layer.layer_norm().epsilon());
  }
  case proto::Layer::kEmbedding:
    return embedded(x, layer.embedding());
  case proto::Layer::kPositionEmbedding:
    return positions_added(x, layer.position_embedding());
  case proto::Layer::kRnn:
    return recurrent(x, layer.rnn(), cell::rnn);
  case proto::Layer::kLstm:
    return recurrent(x, layer.lstm(), cell::lstm);
  case proto::Layer::kGru:
    return recurrent(x, layer.gru(), cell::gru);
  case proto::Layer::kAttention:
    return attention(x, layer.attention());
  case proto::Layer::kTranspose:
    return transpose(x, {layer.transpose().axes().begin(), layer.transpose().axes().end()});
  case proto::Layer::kSlice: {
    const auto& how = layer.slice();
    check_axis(x, how.axis());
    return slice(x, how.axis(), how.begin(), how.has_end() ? how.end() : x.shape()[how.axis()]);
  }
  case proto::Layer::kSum:
    return reduce(x, layer.sum().axis(), false);
  case proto::Layer::kMean:
    return reduce(x, layer.mean().axis(), true);
  default:
    throw input_error("the layer has no kind; add one, such as dense { units: 10 }");
  }
}

expression layer_builder::embedded(expression x, const proto::Embedding& how) {
  if (x.node().type != dtype::int32)
    throw input_error("numbers; an embedding reads tokens");
  const std::int64_t entries =
    how.has_entries() ? how.entries() : static_cast<std::int64_t>(vocabulary_);
  if (entries < static_cast<std::int64_t>(vocabulary_) || entries == 0)
    throw input_error("a table of " + std::to_string(entries) + " entries, but the data has "
                      + std::to_string(vocabulary_) + " tokens");
  const auto weights =
    initializer_of(how.has_weights(), how.weights(), initializer::glorot_uniform());
  return embedding(variable("weight", {entries, how.width()}, weights), x);
}

// Adds a row for each position, which all samples share. The rows are a bias of the whole sample.
expression layer_builder::positions_added(expression x, const proto::PositionEmbedding& how) {
  check_sequence(x);
  const auto dims = x.shape(); // a copy, because appending nodes moves the original
  const auto weights =
    initializer_of(how.has_weights(), how.weights(), initializer::glorot_uniform());
  const auto table = variable("weight", {dims[1], dims[2]}, weights);
  return reshape(add_bias(flatten(x), reshape(table, {dims[1] * dims[2]})), dims);
}

expression layer_builder::recurrent(expression x, const proto::Recurrent& how, cell kind) {
  check_sequence(x);
  const std::int64_t hidden = how.hidden();
  const auto gates = hidden * (kind == cell::rnn ? 1 : kind == cell::lstm ? 4 : 3);
  const auto weights =
    initializer_of(how.has_weights(), how.weights(), initializer::glorot_uniform());
  const auto recurrent_weights =
    initializer_of(how.has_recurrent_weights(), how.recurrent_weights(), weights);
  for (std::uint32_t i = 0; i < how.layers(); ++i) {
    const auto level = "_l" + std::to_string(i);
    const auto w_ih = variable("weight_ih" + level, {gates, x.shape().last()}, weights);
    const auto w_hh = variable("weight_hh" + level, {gates, hidden}, recurrent_weights);
    const auto b_ih = variable("bias_ih" + level, {gates});
    const auto b_hh = variable("bias_hh" + level, {gates});
    if (kind == cell::gru)
      x = gru(troupe::dense(x, w_ih, b_ih), w_hh, b_hh);
    else if (kind == cell::lstm)
      x = lstm(troupe::dense(x, w_ih, b_ih + b_hh), w_hh);
    else
      x = rnn(troupe::dense(x, w_ih, b_ih + b_hh), w_hh);
  }
  if (!how.last())
    return x;
  const auto time = x.shape()[1];
  return reshape(slice(x, 1, time - 1, time), {shape::batch, hidden});
}

expression layer_builder::attention(expression x, const proto::Attention& how) {
  check_sequence(x);
  const auto width = x.shape().last();
  const auto weights =
    initializer_of(how.has_weights(), how.weights(), initializer::glorot_uniform());
  const auto all = dense(x, "in_proj_weight", 3 * width, weights, how.bias(), "in_proj_bias");
  const auto part = [&](std::int64_t i) { return slice(all, 2, i * width, (i + 1) * width); };
  const auto q = part(0);
  const auto k = part(1);
  const auto mixed = causal_attention(q, k, part(2), how.heads());
  return dense(mixed, "out_proj.weight", width, weights, how.bias(), "out_proj.bias");
}

} // namespace troupe
