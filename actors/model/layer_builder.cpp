#include "actors/model/layer_builder.hpp"

#include "actors/model/layer_values.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/graph/sparse_operations.hpp"

#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

namespace {

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

void check_images(expression x) {
  if (x.shape().rank() != 4)
    throw input_error("expected images (batch, channels, height, width)");
}

void check_groups(std::int64_t groups, std::int64_t channels, std::int64_t filters) {
  if (channels % groups != 0 || filters % groups != 0)
    throw input_error(std::to_string(groups) + " groups do not divide " + std::to_string(channels)
                      + " channels and " + std::to_string(filters) + " filters");
}

std::int64_t channels_of(expression x) {
  if (x.shape().rank() < 2)
    throw input_error("expected a tensor (batch, channels, ...)");
  return x.shape()[1];
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
      // If a layer returns its input unchanged, as dropout does in testing, the node keeps the
      // input's name.
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
    auto weights = weights_of(how, usual);
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
  case proto::Layer::kConvTranspose2D:
  case proto::Layer::kMaxPool:
  case proto::Layer::kAveragePool:
  case proto::Layer::kGlobalAveragePool:
  case proto::Layer::kBatchNorm:
  case proto::Layer::kGroupNorm:
    return build_image(layer, x, training);
  case proto::Layer::kAdd:
  case proto::Layer::kMultiply:
  case proto::Layer::kConcat:
  case proto::Layer::kMatmul:
    return build_combination(layer, inputs);
  case proto::Layer::kAttention:
    return attention(x, inputs.back(), layer.attention());
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
  case proto::Layer::kConvTranspose2D:
    return convolution(x, layer.conv_transpose2d());
  case proto::Layer::kMaxPool:
    return max_pool(x, window_of(layer.max_pool()));
  case proto::Layer::kAveragePool:
    return average_pool(x, window_of(layer.average_pool()));
  case proto::Layer::kGlobalAveragePool:
    return flatten(global_average_pool(x));
  case proto::Layer::kGroupNorm: {
    const auto channels = channels_of(x);
    const auto gain = variable("weight", {channels}, initializer::constant(1));
    return group_norm(x, gain, variable("bias", {channels}), layer.group_norm().groups(),
                      layer.group_norm().epsilon());
  }
  default:
    return normalized_batch(x, layer.batch_norm(), training);
  }
}

template <class Fields>
expression layer_builder::convolution(expression x, const Fields& how) {
  constexpr bool transposed = std::is_same_v<Fields, proto::ConvTranspose2d>;
  check_images(x);
  const auto window = window_of(how);
  const auto channels = x.shape()[1];
  const std::int64_t filters = how.filters();
  check_groups(window.groups, channels, filters);
  const auto after = activation_of(how.activation());
  const auto [outer, inner] =
    transposed ? std::pair{channels, filters} : std::pair{filters, channels};
  const auto weights =
    variable("weight", {outer, inner / window.groups, window.height, window.width},
             weights_of(how, initial_weights(after)));
  expression y;
  if constexpr (transposed) {
    const auto [rows, columns] = pair_of(how.output_padding(), 0, 0);
    y = conv_transpose2d(x, weights, window, rows, columns);
  } else {
    y = conv2d(x, weights, window);
  }
  if (how.bias())
    y = add_channel_bias(y, variable("bias", {filters}));
  return activate(y, after);
}

expression layer_builder::normalized_batch(expression x, const proto::BatchNorm& how,
                                           bool training) {
  const shape dims{channels_of(x)};
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
  case proto::Layer::kRmsNorm: {
    const auto gain = variable("weight", {x.shape().last()}, initializer::constant(1));
    return rms_norm(x, gain, layer.rms_norm().epsilon());
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
  case proto::Layer::kTranspose:
    return transpose(x, {layer.transpose().axes().begin(), layer.transpose().axes().end()});
  case proto::Layer::kSlice: {
    const auto& how = layer.slice();
    check_axis(x, how.axis());
    const auto extent = x.shape()[how.axis()];
    if (!how.has_end() && how.begin() >= extent)
      throw input_error(to_string(x.shape()) + ": axis " + std::to_string(how.axis())
                        + " has no position " + std::to_string(how.begin())
                        + ", at which the slice begins");
    return slice(x, how.axis(), how.begin(), how.has_end() ? how.end() : extent);
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
  const auto weights = weights_of(how, initializer::glorot_uniform());
  return embedding(variable("weight", {entries, how.width()}, weights), x);
}

// Adds the same table (positions, features) to each sample. The graph adds it as a bias to the
// flattened sample.
expression layer_builder::positions_added(expression x, const proto::PositionEmbedding& how) {
  check_sequence(x);
  const auto dims = x.shape(); // a copy: adding nodes invalidates references
  const auto weights = weights_of(how, initializer::glorot_uniform());
  const auto table = variable("weight", {dims[1], dims[2]}, weights);
  return reshape(add_bias(flatten(x), reshape(table, {dims[1] * dims[2]})), dims);
}

expression layer_builder::recurrent(expression x, const proto::Recurrent& how, cell kind) {
  check_sequence(x);
  expression forward;
  expression backward;
  for (std::uint32_t i = 0; i < how.layers(); ++i) {
    const auto level = "_l" + std::to_string(i);
    forward = one_direction(x, how, kind, level);
    if (how.bidirectional())
      backward = reverse(one_direction(reverse(x, 1), how, kind, level + "_reverse"), 1);
    x = how.bidirectional() ? concat({forward, backward}, 2) : forward;
  }
  if (!how.last())
    return x;
  // The last state of each direction. The backward direction ends at the first position.
  const auto time = x.shape()[1];
  auto last = slice(forward, 1, time - 1, time);
  if (how.bidirectional())
    last = concat({last, slice(backward, 1, 0, 1)}, 2);
  return flatten(last);
}

expression layer_builder::one_direction(expression x, const proto::Recurrent& how, cell kind,
                                        const std::string& suffix) {
  const std::int64_t hidden = how.hidden();
  const auto gates = hidden * (kind == cell::rnn ? 1 : kind == cell::lstm ? 4 : 3);
  const auto weights = weights_of(how, initializer::glorot_uniform());
  const auto recurrent_weights =
    initializer_of(how.has_recurrent_weights(), how.recurrent_weights(), weights);
  const auto w_ih = variable("weight_ih" + suffix, {gates, x.shape().last()}, weights);
  const auto w_hh = variable("weight_hh" + suffix, {gates, hidden}, recurrent_weights);
  const auto b_ih = variable("bias_ih" + suffix, {gates});
  const auto b_hh = variable("bias_hh" + suffix, {gates});
  if (kind == cell::gru && how.reset_after())
    return gru(troupe::dense(x, w_ih, b_ih), w_hh, b_hh);
  const auto z = troupe::dense(x, w_ih, b_ih + b_hh);
  if (kind == cell::gru)
    return gru_reset_before(z, w_hh);
  return kind == cell::lstm ? lstm(z, w_hh) : rnn(z, w_hh);
}

// One product computes the queries, keys and values of self-attention. In cross-attention, the
// first rows of its matrix give the queries from x, and the other rows give the keys and values
// from `other`.
expression layer_builder::attention(expression x, expression other, const proto::Attention& how) {
  check_sequence(x);
  check_sequence(other);
  const auto width = x.shape().last();
  const auto weights = weights_of(how, initializer::glorot_uniform());
  const auto part = [&](expression all, std::int64_t i) {
    return slice(all, 2, i * width, (i + 1) * width);
  };
  expression q;
  expression k;
  expression v;
  if (x == other) {
    const auto all = dense(x, "in_proj_weight", 3 * width, weights, how.bias(), "in_proj_bias");
    q = part(all, 0);
    k = part(all, 1);
    v = part(all, 2);
  } else {
    if (other.shape().last() != width)
      throw input_error("expected two sequences with the same number of features");
    const auto w = variable("in_proj_weight", {3 * width, width}, weights);
    const auto project = [&](expression of, std::int64_t begin, std::int64_t end) {
      const auto y = troupe::dense(of, slice(w, 0, begin * width, end * width));
      return how.bias()
        ? add_bias(y, slice(variable("in_proj_bias", {3 * width}), 0, begin * width, end * width))
        : y;
    };
    q = project(x, 0, 1);
    const auto rest = project(other, 1, 3);
    k = part(rest, 0);
    v = part(rest, 1);
  }
  const auto mixed = multi_head_attention(q, k, v, how.heads(), how.causal());
  return dense(mixed, "out_proj.weight", width, weights, how.bias(), "out_proj.bias");
}

} // namespace troupe
