#include "apps/troupe/bench/works.hpp"

#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <array>
#include <cmath>
#include <string>

namespace troupe::bench {

namespace {

constexpr std::int64_t vocabulary = 65;
constexpr std::int64_t sequence = 64;

expression softmax_regression(expression x) {
  return dense_layer(x, "dense_1", 10);
}

expression perceptron(expression x) {
  const auto h = dense_layer(x, "dense_1", 256, activation::relu);
  return dense_layer(dense_layer(h, "dense_2", 128, activation::relu), "dense_3", 10);
}

expression convolutional(expression x, std::int64_t side) {
  const window kernel{side, side, 1, 1, side / 2, side / 2, 1};
  const window pool{2, 2, 2, 2};
  auto h = reshape(x, {shape::batch, 1, 28, 28});
  h = max_pool(conv2d_layer(h, "conv_1", 16, kernel, activation::relu), pool);
  h = max_pool(conv2d_layer(h, "conv_2", 32, kernel, activation::relu), pool);
  return dense_layer(flatten(h), "dense_1", 10);
}

expression convolutional_3(expression x) {
  return convolutional(x, 3);
}

expression convolutional_5(expression x) {
  return convolutional(x, 5);
}

expression table(expression x, const std::string& name, std::int64_t entries, std::int64_t width) {
  return x.owner().variable(name + ".weight", {entries, width}, initializer::glorot_uniform());
}

expression recurrent_model(expression ids) {
  const auto h = embedding(table(ids, "embedding", vocabulary, 64), ids);
  return dense_layer(recurrent_layer(h, "lstm", 256, cell::lstm), "dense_1", vocabulary);
}

expression norm_layer(expression x, const std::string& name) {
  auto& owner = x.owner();
  const auto width = x.shape().last();
  const auto gain = owner.variable(name + ".weight", {width}, initializer::constant(1));
  return layer_norm(x, gain, owner.variable(name + ".bias", {width}));
}

/// A block of GPT-2. It has two parts (attention and dense layers). Each part has a normalization
/// before it and a residual connection around it.
expression block(expression x, const std::string& name, std::int64_t heads) {
  const auto width = x.shape().last();
  const auto qkv = dense_layer(norm_layer(x, name + ".norm_1"), name + ".qkv", 3 * width);
  const auto part = [&](std::int64_t i) { return slice(qkv, 2, i * width, (i + 1) * width); };
  const auto mixed = causal_attention(part(0), part(1), part(2), heads);
  const auto h = x + dense_layer(mixed, name + ".projection", width);
  const auto inner =
    dense_layer(norm_layer(h, name + ".norm_2"), name + ".inner", 4 * width, activation::gelu);
  return h + dense_layer(inner, name + ".outer", width);
}

expression small_transformer(expression ids) {
  return transformer(
    ids, {.vocabulary = vocabulary, .context = sequence, .width = 128, .layers = 4, .heads = 4});
}

constexpr optimizer momentum{.kind = optimizer_kind::momentum};
constexpr optimizer adam{.kind = optimizer_kind::adam};
constexpr optimizer adamw{.kind = optimizer_kind::adamw, .weight_decay = 0.01F};

constexpr std::size_t time = sequence;
constexpr std::size_t characters = vocabulary;

constexpr std::array all{
  work{"softmax",
       "softmax regression 784-10, SGD",
       64,
       784,
       false,
       1,
       10,
       {},
       0.01,
       softmax_regression},
  work{"mlp-64", "MLP 784-256-128-10, momentum", 64, 784, false, 1, 10, momentum, 0.005,
       perceptron},
  work{"mlp-256", "MLP 784-256-128-10, momentum", 256, 784, false, 1, 10, momentum, 0.005,
       perceptron},
  work{"cnn", "CNN conv16-pool-conv32-pool-dense10, 5x5, momentum", 64, 784, false, 1, 10, momentum,
       0.002, convolutional_5},
  work{"cnn-3x3", "CNN conv16-pool-conv32-pool-dense10, 3x3, momentum", 64, 784, false, 1, 10,
       momentum, 0.002, convolutional_3},
  work{"lstm", "character LSTM, embedding 64, hidden 256, sequence 64, Adam", 32, time, true, time,
       characters, adam, 0.0005, recurrent_model},
  work{"gpt", "GPT, 4 layers, 128 wide, 4 heads, context 64, AdamW", 16, time, true, time,
       characters, adamw, 0.0002, small_transformer},
};

} // namespace

std::span<const work> works() {
  return all;
}

expression transformer(expression ids, const transformer_sizes& size) {
  const auto n = size.context;
  const auto width = size.width;
  const auto words = table(ids, "tokens", size.vocabulary, width);
  const auto tokens = embedding(words, ids);
  const auto positions = table(ids, "positions", 1, n * width);
  auto h =
    reshape(add_bias(reshape(tokens, {shape::batch, n * width}), reshape(positions, {n * width})),
            {shape::batch, n, width});
  for (int i = 0; i < size.layers; ++i)
    h = block(h, "blocks." + std::to_string(i), size.heads);
  h = norm_layer(h, "norm");
  if (size.shares_head)
    return dense(h, words);
  return dense_layer(h, "head", size.vocabulary, activation::none, false);
}

} // namespace troupe::bench
