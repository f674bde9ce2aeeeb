#include "tests/kernels/cuda/on_gpu.hpp"

#include "kernels/cuda/executor.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

namespace troupe::test {

namespace {

double largest(const std::vector<double>& x) {
  double result = 0;
  for (const double v : x)
    result = std::max(result, std::fabs(v));
  return result;
}

} // namespace

executed execute_on_gpu(const graph& g, const leaves& values, expression loss,
                        const std::vector<expression>& fetches, bool gradients,
                        expression correct) {
  auto options = cuda::gpu_plan_options();
  options.max_rows = std::max<std::size_t>(values.rows, 1);
  options.loss = loss;
  options.correct = correct;
  options.fetches = fetches;
  options.gradients = gradients;
  simulated_device gpu;
  cuda::executor run(gpu, std::make_shared<const plan>(g, options));
  const auto before = gpu.allocations();

  std::vector<std::vector<float>> weights;
  std::vector<const float*> pointers;
  for (const auto& x : values.weights)
    weights.emplace_back(x.begin(), x.end());
  for (const auto& x : weights)
    pointers.push_back(x.data());
  std::vector<std::vector<float>> floats(values.feeds.size());
  std::vector<std::vector<std::int32_t>> labels(values.feeds.size());
  std::vector<feed<float>> feeds;
  for (std::size_t i = 0; i < values.feeds.size(); ++i) {
    const auto& x = values.feeds[i];
    if (g.at(g.placeholders()[i]).type == dtype::int32) {
      labels[i].assign(x.begin(), x.end());
      feeds.emplace_back(labels[i].data());
    } else {
      floats[i].assign(x.begin(), x.end());
      feeds.emplace_back(floats[i].data());
    }
  }
  std::vector<float> gradient(gradients ? g.parameters().size() : 0);
  run_arguments<float> arguments;
  arguments.rows = values.rows;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.gradient = gradient;
  const auto result = run.run(arguments);
  BOOST_TEST(gpu.allocations() == before);

  executed out;
  out.loss = result.loss;
  out.correct = result.correct;
  out.counted = result.counted;
  out.gradient.assign(gradient.begin(), gradient.end());
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    const auto x = run.fetched(i);
    out.fetches.emplace_back(x.begin(), x.end());
  }
  return out;
}

void check_on_gpu(const graph& g, expression y, double tolerance) {
  const auto what = [&](std::size_t rows) {
    return y.name() + " with " + std::to_string(rows) + " rows";
  };
  for (const std::size_t rows : {0, 1, 2, 7, 33}) {
    const auto values = random_leaves(g, rows);
    const auto expected = reference_value(g, y.id(), values);
    check_close(execute_on_gpu(g, values, {}, {y}, false).fetches[0], expected, tolerance,
                tolerance * largest(expected), what(rows));
  }
  auto differentiated = g;
  const auto loss = to_scalar({differentiated, y.id()});
  for (const std::size_t rows : {1, 7}) {
    const auto values = random_leaves(g, rows);
    const auto expected = execute<double>(differentiated, values, loss, {}, true);
    const auto actual = execute_on_gpu(differentiated, values, loss, {}, true);
    check_close(std::vector{actual.loss}, std::vector{expected.loss}, 10 * tolerance,
                10 * tolerance, "loss of " + what(rows));
    check_close(actual.gradient, expected.gradient, 10 * tolerance,
                10 * tolerance * largest(expected.gradient), "gradient of " + what(rows));
  }
}

} // namespace troupe::test
