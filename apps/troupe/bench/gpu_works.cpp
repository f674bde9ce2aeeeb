#include "apps/troupe/bench/gpu_works.hpp"

#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace troupe::bench {

namespace {

expression wide_perceptron(expression x) {
  auto h = x;
  for (const auto* name : {"dense_1", "dense_2", "dense_3"})
    h = dense_layer(h, name, 4096, activation::relu);
  return dense_layer(h, "dense_4", 4096);
}

/// GPT-2 with 124 million parameters. The output layer uses the weights of the embedding.
expression gpt2(expression ids) {
  return transformer(ids,
                     {.vocabulary = 50257,
                      .context = 1024,
                      .width = 768,
                      .layers = 12,
                      .heads = 12,
                      .shares_head = true});
}

const work& known(std::string_view name) {
  return *std::ranges::find(works(), name, &work::name);
}

gpu_work with_batch(std::string_view name, std::string_view of, std::size_t batch) {
  auto what = known(of);
  what.name = name;
  what.batch = batch;
  return {.what = what, .checked_batch = batch, .checked_steps = 10};
}

std::vector<gpu_work> all() {
  constexpr optimizer momentum{.kind = optimizer_kind::momentum};
  constexpr optimizer adamw{.kind = optimizer_kind::adamw, .weight_decay = 0.01F};
  auto mlp = with_batch("mlp-64", "mlp-64", 64);
  mlp.goal_eager = 5;
  mlp.goal_graph = 1.2;
  gpu_work wide{.what = {"mlp-4096", "MLP, 4 layers, 4096 wide, momentum", 4096, 4096, false, 1,
                         4096, momentum, 0.001, wide_perceptron},
                .precision = dtype::bfloat16,
                .checked_batch = 64,
                .checked_steps = 3,
                .goal_eager = 1};
  auto cnn = with_batch("cnn-256", "cnn", 256);
  cnn.goal_eager = 1.5;
  auto lstm = with_batch("lstm", "lstm", 32);
  lstm.goal_eager = 1;
  auto gpt = with_batch("gpt", "gpt", 16);
  gpt.goal_eager = 1.5;
  gpu_work large{.what = {"gpt2-small", "GPT-2, 12 layers, 768 wide, context 1024, AdamW", 8, 1024,
                          true, 1024, 50257, adamw, 0.0001, gpt2},
                 .precision = dtype::bfloat16,
                 .checked_batch = 1,
                 .checked_steps = 2};
  return {mlp, wide, cnn, lstm, gpt, large};
}

} // namespace

std::span<const gpu_work> gpu_works() {
  static const auto result = all();
  return result;
}

} // namespace troupe::bench
