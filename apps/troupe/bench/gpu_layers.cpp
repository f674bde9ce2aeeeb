#include "apps/troupe/bench/gpu_bench.hpp"
#include "apps/troupe/bench/gpu_values.hpp"
#include "kernels/cuda/dense_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

// The speed of dense layers (forward, bias and activation), compared with plain products of the
// same size.

namespace troupe::bench {

namespace {

constexpr double layer_goal = 0.95;

/// The matrices that one turn (one execution of the layer) uses.
struct layer_set {
  gpu_values x;       // (m, k)
  gpu_values weights; // (n, k)
  gpu_values out;     // (m, n)
};

struct layer_patterns {
  std::vector<float> x;
  std::vector<float> weights;
  std::vector<float> bias; // (n)
};

std::vector<layer_set> make_sets(cuda::device& gpu, const layer_size& size,
                                 const layer_patterns& values, std::size_t bytes) {
  const auto elements = size.m * size.k + size.n * size.k + size.m * size.n;
  const auto each = std::max<std::size_t>(elements * size_of(size.precision), 1);
  std::vector<layer_set> result;
  for (std::size_t i = 0; i < std::clamp<std::size_t>((bytes + each - 1) / each, 2, 64); ++i) {
    result.push_back({{gpu, size.m * size.k, size.precision},
                      {gpu, size.n * size.k, size.precision},
                      {gpu, size.m * size.n, size.precision}});
    result.back().x.fill(values.x);
    result.back().weights.fill(values.weights);
  }
  return result;
}

cuda::product product_of(const layer_size& size, const layer_set& set) {
  return {.m = size.m,
          .n = size.n,
          .k = size.k,
          .transpose_b = true,
          .a = set.x.data(),
          .b = set.weights.data(),
          .c = set.out.data(),
          .operands = size.precision,
          .result = size.precision};
}

double ended(operation after, double x) {
  if (after == operation::relu)
    return std::max(x, 0.0);
  if (after == operation::gelu)
    return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  return x;
}

/// Checks the first, a middle and the last row of the result against sums in double. Accepts
/// rounding errors of the sum, of the bias and of the result. Returns an empty text if the rows are
/// right.
std::string fault_of(const layer_size& size, const layer_patterns& values, const layer_set& set,
                     bool plain) {
  const bool narrow = is_narrow(size.precision);
  const double sum_error = 4e-6 * std::sqrt(static_cast<double>(size.k)) + (narrow ? 1.0 / 128 : 0);
  const double rounding = size.precision == dtype::bfloat16 ? 1.0 / 128
    : size.precision == dtype::float16                      ? 1.0 / 1024
                                                            : 1e-5;
  for (const auto row : {std::size_t{0}, size.m / 2, size.m - 1}) {
    const auto actual = set.out.read(row * size.n, size.n);
    for (std::size_t i = 0; i < size.n; ++i) {
      double expected = plain ? 0 : static_cast<double>(values.bias[i]);
      for (std::size_t p = 0; p < size.k; ++p)
        expected += static_cast<double>(values.x[(row * size.k + p) % values.x.size()])
          * static_cast<double>(values.weights[(i * size.k + p) % values.weights.size()]);
      expected = plain ? expected : ended(size.after, expected);
      const auto difference = std::abs(static_cast<double>(actual[i]) - expected);
      if (!(difference <= sum_error + rounding * std::abs(expected)))
        return fmt::format("row {}, column {} is {}; expected {}", row, i, actual[i], expected);
    }
  }
  return {};
}

layer_result measure_layer(cuda::device& gpu, const layer_size& size,
                           const gpu_bench_options& options) {
  layer_result result{.size = size, .goal = layer_goal};
  if (!gpu.multiplies(size.precision))
    throw device_error("the GPU has no products of " + std::string(to_string(size.precision)));
  const auto pattern = options.sizes.pattern;
  const layer_patterns values{random_pattern(pattern, "x", size.precision),
                              random_pattern(pattern - 1, "weights", size.precision),
                              random_pattern(size.n, "bias")};
  const auto sets = make_sets(gpu, size, values, options.sizes.rotated_bytes);
  gpu_values bias(gpu, size.n);
  bias.fill(values.bias);
  const gpu_values space(gpu,
                         cuda::product_space(product_of(size, sets[0]), true) / sizeof(float) + 1);
  const auto where = gpu.main_stream();
  const auto layer = [&](std::size_t i) {
    cuda::multiply(gpu, where,
                   {product_of(size, sets[i % sets.size()]), bias.floats(), {size.after}},
                   space.data());
  };
  const auto product = [&](std::size_t i) {
    gpu.multiply(where, product_of(size, sets[i % sets.size()]));
  };
  auto fused = product_of(size, sets[0]);
  fused.bias = bias.data();
  fused.after = size.after;
  result.fused = gpu.fuses(fused);
  for (const bool plain : {false, true})
    for (const auto i : {std::size_t{0}, sets.size() - 1}) {
      plain ? product(i) : layer(i);
      if (result.fault.empty())
        result.fault = fault_of(size, values, sets[i], plain);
    }
  const gpu_work_turn works[] = {layer, product};
  const auto times = measure_on(gpu, options.how, sets.size(), works);
  result.seconds = times[0];
  result.product_seconds = times[1];
  return result;
}

} // namespace

std::vector<layer_result> measure_layers(cuda::device& gpu, const gpu_bench_options& options,
                                         std::vector<std::string>& missing) {
  std::vector<layer_result> result;
  for (const auto& size : options.sizes.layers) {
    try {
      result.push_back(measure_layer(gpu, size, options));
    } catch (const device_error& error) {
      missing.push_back(
        fmt::format("dense layer of {}: {}", to_string(size.precision), error.what()));
    }
  }
  return result;
}

} // namespace troupe::bench
