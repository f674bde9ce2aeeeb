#include "kernels/cuda/device.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/support/skip.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>

// What the simulator cannot show: that a GPU and cuBLAS compute the same.

using namespace troupe;
using namespace troupe::test;

namespace {

/// The first GPU; null, and the case is skipped, if there is none.
std::unique_ptr<cuda::device> open_or_skip() {
  try {
    return cuda::open_device(0);
  } catch (const cuda::device_error& e) {
    skip(e.what());
    return nullptr;
  }
}

} // namespace

BOOST_AUTO_TEST_SUITE(gpu)

BOOST_AUTO_TEST_CASE(products_are_those_of_the_cpu) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  constexpr std::size_t m = 67;
  constexpr std::size_t n = 33;
  constexpr std::size_t k = 129;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const auto a = random_values(2 * m * k, "a");
      const auto b = random_values(2 * k * n, "b");
      const std::vector<float> left(a.begin(), a.end());
      const std::vector<float> right(b.begin(), b.end());
      std::vector<double> expected(2 * m * n);
      for (std::size_t i = 0; i < expected.size(); ++i)
        for (std::size_t p = 0; p < k; ++p) {
          const auto row = i / n % m;
          const auto column = i % n;
          const auto first = i / (m * n);
          expected[i] += a[first * m * k + (transpose_a ? p * m + row : row * k + p)]
            * b[first * k * n + (transpose_b ? column * k + p : p * n + column)];
        }
      const cuda::buffer<float> da(*gpu, left.size());
      const cuda::buffer<float> db(*gpu, right.size());
      const cuda::buffer<float> dc(*gpu, expected.size());
      const auto where = gpu->main_stream();
      gpu->copy_in(where, da.data(), left.data(), da.bytes());
      gpu->copy_in(where, db.data(), right.data(), db.bytes());
      gpu->multiply(where, {m, n, k, transpose_a, transpose_b, da.data(), db.data(), dc.data(), 2});
      std::vector<float> result(expected.size());
      gpu->copy_out(where, result.data(), dc.data(), dc.bytes());
      gpu->synchronize(where);
      // 129 roundings of 2^-24, of sums of at most 129 products of a few units.
      check_close(result, expected, 1e-5, 1e-4, "product");
    }
}

BOOST_AUTO_TEST_CASE(a_training_step_is_that_of_the_cpu) {
  const auto gpu = open_or_skip();
  if (!gpu)
    return;
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 37});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto h = dense_layer(x, "dense_1", 29, activation::relu);
  const auto logits = dense_layer(dropout(h, 0.2, "drop"), "dense_2", 5);
  auto options = cuda::gpu_plan_options();
  options.loss = softmax_cross_entropy(logits, labels);
  options.correct = softmax_correct(logits, labels);
  options.gradients = true;
  cuda::executor there(*gpu, std::make_shared<const plan>(g, options));
  options.fusion = &cpu_fusion();
  troupe::executor<float> here(std::make_shared<const plan>(g, options));

  const auto given = random_leaves(g, 64, 5);
  std::vector<std::vector<float>> tensors;
  std::vector<const float*> weights;
  for (const auto& w : given.weights)
    tensors.emplace_back(w.begin(), w.end());
  for (const auto& w : tensors)
    weights.push_back(w.data());
  const std::vector<float> features(given.feeds[0].begin(), given.feeds[0].end());
  const std::vector<std::int32_t> classes(given.feeds[1].begin(), given.feeds[1].end());
  const std::vector<feed<float>> feeds{features.data(), classes.data()};
  const auto run = [&](auto& executor, std::vector<float>& gradient) {
    gradient.resize(g.parameters().size());
    run_arguments<float> arguments;
    arguments.rows = 64;
    arguments.weights = weights;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    return executor.run(arguments);
  };
  std::vector<float> expected;
  std::vector<float> actual;
  const auto reference = run(here, expected);
  const auto result = run(there, actual);
  check_close(std::vector{result.loss}, std::vector{reference.loss}, 1e-5, 1e-5, "loss");
  BOOST_TEST(result.correct == reference.correct);
  check_close(actual, std::vector<double>(expected.begin(), expected.end()), 1e-4, 1e-3,
              "gradient");
}

BOOST_AUTO_TEST_SUITE_END()
