#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/devices/device_executor.hpp"
#include "tests/kernels/numeric.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::test {

// Checks of the results of a device. gpu_test runs them on a GPU, and cuda_kernels_test on the
// simulator.

// -- single operations

/// Checks products with all combinations of transposed operands. Some are batches of products. Some
/// have k = 0, so the result must be 0.
void check_products(cuda::device& gpu);

/// Like execute() of numeric.hpp, but on a device.
executed execute_on(cuda::device& gpu, const graph& g, const leaves& values, expression loss,
                    const std::vector<expression>& fetches, bool gradients,
                    expression correct = {});

/// Compares y with the reference for several numbers of rows. The tolerance is relative to the
/// largest element. Also compares the gradient of to_scalar(y) with that of the CPU in double, with
/// ten times the tolerance.
void check_on(cuda::device& gpu, const graph& g, expression y, double tolerance);

/// Convolution windows with all options.
extern const std::vector<window> windows;

void check_convolutions(cuda::device& gpu);
/// Checks convolutions with more filters, patches and positions than a tile has. They need several
/// tiles.
void check_large_convolutions(cuda::device& gpu);
void check_pooling(cuda::device& gpu);
void check_batch_normalization(cuda::device& gpu);
void check_channels(cuda::device& gpu);
void check_moves(cuda::device& gpu);
void check_layer_normalization(cuda::device& gpu);
/// Checks operations on rows. kernels/cuda/rows.hpp handles rows of different lengths in different
/// ways. There is a length for each of these ways, both for aligned and for unaligned rows.
void check_long_rows(cuda::device& gpu);
void check_attention(cuda::device& gpu);
void check_recurrence(cuda::device& gpu);
/// Updates several ranges in one launch, and copies them, with a rule that is lazy and one that is
/// not. The bits must be those of the CPU.
void check_updates(cuda::device& gpu);
/// Packs ranges of several vectors, unpacks them, and sets those of the first vector to 0.
void check_packing(cuda::device& gpu);
/// Checks updates that change only some elements (range_update::only), and an update of all
/// elements after them. The bits must be those of the CPU.
void check_updates_of_some(const std::shared_ptr<cuda::device>& gpu);

// -- models

/// A model with random leaves. It has one plan per device.
struct model {
  model() = default;
  model(const model&) = delete; // expressions point to the graph
  model& operator=(const model&) = delete;

  graph g;
  expression loss;
  expression correct;
  std::vector<expression> fetches;
  leaves values;
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<std::int32_t>> labels;

  std::shared_ptr<const plan> plan_for(plan_options options, std::size_t max_rows) const {
    options.max_rows = max_rows;
    options.loss = loss;
    options.correct = correct;
    options.fetches = fetches;
    options.gradients = loss.valid();
    options.bucket_bytes = 256;
    return std::make_shared<const plan>(g, options);
  }

  void draw(std::size_t rows, std::int64_t classes, std::uint64_t salt = 0) {
    values = random_leaves(g, rows, classes, salt);
    weights.clear();
    for (const auto& x : values.weights)
      weights.emplace_back(x.begin(), x.end());
    floats.assign(values.feeds.size(), {});
    labels.assign(values.feeds.size(), {});
    for (std::size_t i = 0; i < values.feeds.size(); ++i) {
      const auto& x = values.feeds[i];
      if (g.at(g.placeholders()[i]).type == dtype::int32)
        labels[i].assign(x.begin(), x.end());
      else
        floats[i].assign(x.begin(), x.end());
    }
  }

  std::vector<feed<float>> feeds() const {
    std::vector<feed<float>> result;
    for (std::size_t i = 0; i < floats.size(); ++i)
      result.push_back(labels[i].empty() ? feed<float>(floats[i].data())
                                         : feed<float>(labels[i].data()));
    return result;
  }
  std::vector<const float*> pointers() const {
    std::vector<const float*> result;
    for (const auto& x : weights)
      result.push_back(x.data());
    return result;
  }
};

/// A classifier with 37 inputs, layers of 29, 17 and 17 units, and 5 classes. It uses most features
/// of dense models.
void build_classifier(model& m);
/// Convolutions, batch normalization, and both kinds of pooling, from (batch, 3, 10, 9) to 4
/// classes.
void build_network(model& m);
/// Causal attention with 2 heads, from (batch, length, width) to 4 classes.
void build_sequences(model& m, std::int64_t length = 20, std::int64_t width = 16);

struct results {
  run_result result;
  std::vector<float> gradient;
  std::vector<std::vector<float>> fetched;
  std::vector<std::size_t> buckets;
};

template <class Executor>
results run(const model& m, Executor& executor) {
  results out;
  out.gradient.resize(executor.what().has_gradients() ? m.g.parameters().size() : 0);
  const auto feeds = m.feeds();
  const auto pointers = m.pointers();
  run_arguments<float> arguments;
  arguments.rows = m.values.rows;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.seed = 7;
  arguments.gradient = out.gradient;
  const auto on_bucket = [&](std::size_t i) { out.buckets.push_back(i); };
  arguments.on_bucket = on_bucket;
  out.result = executor.run(arguments);
  for (std::size_t i = 0; i < m.fetches.size(); ++i) {
    const auto x = executor.fetched(i);
    out.fetched.emplace_back(x.begin(), x.end());
  }
  return out;
}

/// Compares the results of a GPU with those of the CPU. A GPU adds up in another order, and in
/// double instead of float. The tolerance is relative to the largest element of a tensor.
void check_same(const results& gpu, const results& cpu, double tolerance = 2e-6);
/// Makes a plan in this precision.
std::shared_ptr<const plan> plan_for(const model& m, plan_options options, dtype type,
                                     std::size_t rows);
/// Compares mixed precision on the device and on the CPU. Both round the results of their steps.
/// But they fuse different steps, and their sums differ in the last bits of float32, so a single
/// result may be rounded to a neighbour. Therefore, tensors are compared by the length of their
/// difference.
/// @param roundings the accepted length of the difference, relative to the length of the tensor, in
/// rounding errors of 16 bits
void check_mixed(cuda::device& gpu, model& m, std::int64_t classes, double roundings = 10);
/// A training step. `batch` is the number of its batch. `next` is the number of the batch that it
/// announces, or 0 if it announces no batch.
struct announcing_step {
  std::uint64_t batch = 0;
  std::uint64_t next = 0;
  std::size_t rows = 7;
  std::size_t next_rows = 7;
};

/// Runs the steps on the model that `build` makes. Each batch has its own random leaves.
/// @param known the number of feeds that are announced
std::vector<results> announced_steps(cuda::device& gpu, const std::shared_ptr<const plan>& what,
                                     const std::vector<announcing_step>& steps,
                                     std::size_t known = 2,
                                     void (*build)(model&) = build_classifier);
/// Runs a model on the device and on the CPU, with several numbers of rows, and compares the
/// results.
void check_against_cpu(cuda::device& gpu, model& m, std::int64_t classes, double tolerance = 2e-6);
/// Checks that recorded runs give the same bits as runs without a recording. Seeds, feeds and
/// numbers of rows change between the runs.
void check_recordings(cuda::device& gpu);
/// Checks two workers that use the first GPU at the same time, each on its own thread.
void check_workers(const gpu_set& gpus, double tolerance = 2e-6);
/// Makes five training steps on the device and on the CPU. On the device, weights, gradients and
/// state stay in its memory. In the end, the weights may differ by `tolerance`.
void check_training(cuda::device& gpu, model& m, std::int64_t classes, double tolerance = 1e-6);
/// Checks a model with mean squared error, and a model with two classes.
void check_regression(cuda::device& gpu);

} // namespace troupe::test
