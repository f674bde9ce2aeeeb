#include "apps/troupe/bench/gpu_bench.hpp"
#include "apps/troupe/bench/gpu_values.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/losses.hpp"
#include "kernels/cuda/movement.hpp"
#include "kernels/cuda/normalization.hpp"
#include "kernels/cuda/updates.hpp"
#include "kernels/optimizers/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

// The speed of work that is limited by the bandwidth of the GPU's memory, compared with plain
// copies.

namespace troupe::bench {

namespace {

constexpr double update_goal = 0.9;
constexpr double operation_goal = 0.8;
constexpr double epsilon = 1e-5;

/// Measures copies in the GPU's memory, by the driver and by a kernel. Other work can be measured
/// in the same rounds as the copies. Its speed is then compared with the faster copy.
class copies {
public:
  copies(cuda::device& gpu, const gpu_bench_options& options)
    : gpu_(gpu), options_(options), from_(gpu, options.sizes.copied),
      to_(gpu, options.sizes.copied) {
    from_.fill(random_pattern(options.sizes.pattern, "copied"));
  }

  std::vector<memory_result> alone() const {
    const auto pattern = random_pattern(options_.sizes.pattern, "copied");
    const auto works = turns();
    const auto times = measure({}, 0);
    std::vector<memory_result> result;
    for (std::size_t i = 0; i < works.size(); ++i) {
      cuda::fill_zero(gpu_.main_stream(), to_.size(), to_.output());
      works[i](0);
      auto& x = result.emplace_back();
      x.what = i == 0 ? "copy by the driver" : "copy by a kernel";
      x.elements = from_.size();
      x.bytes = bytes();
      x.seconds = times[i];
      x.copy_speed = fastest(times, 0);
      x.fault = to_.differs(pattern, 0, 0);
    }
    return result;
  }

  /// Measures f, and adds the times to `x`. The caller has filled in all other fields.
  memory_result beside(memory_result x, const gpu_work_turn& f) const {
    const auto times = measure(f, 1);
    x.seconds = times[0];
    x.copy_speed = fastest(times, 1);
    return x;
  }

private:
  double bytes() const { return 2.0 * static_cast<double>(from_.size() * sizeof(float)); }
  double fastest(const std::vector<statistics>& times, std::size_t first) const {
    return bytes() / std::min(times[first].median, times[first + 1].median);
  }
  /// One turn for each of the two copies.
  std::vector<gpu_work_turn> turns() const {
    const auto where = gpu_.main_stream();
    const auto n = from_.size();
    return {[this, where, n](std::size_t) {
              gpu_.copy_inside(where, to_.data(), from_.data(), n * sizeof(float));
            },
            [this, where, n](std::size_t) {
              cuda::copy_rows(where, {1, n, from_.input(), n, to_.output(), n});
            }};
  }
  /// Measures both copies. If `first` is 1, measures f before them.
  std::vector<statistics> measure(const gpu_work_turn& f, std::size_t first) const {
    auto all = turns();
    if (first > 0)
      all.insert(all.begin(), f);
    return measure_on(gpu_, options_.how, 3, all);
  }

  cuda::device& gpu_;
  const gpu_bench_options& options_;
  gpu_values from_;
  gpu_values to_;
};

// -- updates

memory_result measure_update(cuda::device& gpu, const copies& beside, const gpu_sizes& size,
                             std::string what, const optimizer& rule) {
  const auto n = size.parameters;
  const auto slots = rule.slots();
  auto weights = random_pattern(size.pattern, "weights");
  const auto gradient = random_pattern(size.pattern, "gradient");
  gpu_values w(gpu, n);
  gpu_values g(gpu, n);
  gpu_values state(gpu, slots * n);
  w.fill(weights);
  g.fill(gradient);
  const auto where = gpu.main_stream();
  cuda::fill_zero(where, slots * n, state.output());
  std::uint64_t step = 0;
  const auto update_there = [&](std::size_t) {
    update_arguments<float> x{
      {w.floats(), n}, {g.floats(), n}, {state.floats(), slots * n}, {w.floats(), n}};
    x.rate = 1e-3;
    x.scale = 0.5;
    x.step = ++step;
    cuda::update(where, rule, x, nullptr);
  };
  update_there(0);
  std::vector<float> expected_state(slots * size.pattern);
  update_arguments<float> here{weights, gradient, expected_state, weights};
  here.rate = 1e-3;
  here.scale = 0.5;
  update<float>(rule, here);
  memory_result result{.what = std::move(what), .elements = n, .goal = update_goal};
  // An update reads weights, gradient and state, and writes weights and state.
  result.bytes = static_cast<double>((3 + 2 * slots) * n * sizeof(float));
  result.fault = w.differs(weights, 0, 0);
  for (std::size_t i = 0; i < slots && result.fault.empty(); ++i)
    result.fault = state.differs(std::span{expected_state}.subspan(i * size.pattern, size.pattern),
                                 0, 0, i * n, n);
  return beside.beside(std::move(result), update_there);
}

// -- operations

/// The accepted rounding error of elements whose size is about 1.
double rounding_of(dtype type) {
  return type == dtype::bfloat16 ? 1.0 / 128 : type == dtype::float16 ? 1.0 / 1024 : 2e-6;
}

std::string name_of(std::string_view what, dtype type) {
  return fmt::format("{}, {}", what, to_string(type));
}

/// Measures the chain of operations tanh(a * b + c).
memory_result measure_chain(cuda::device& gpu, const copies& beside, const gpu_sizes& size,
                            dtype type) {
  const auto n = size.elements;
  std::vector<gpu_values> in;
  std::vector<std::vector<float>> patterns;
  for (const auto* name : {"a", "b", "c"}) {
    patterns.push_back(random_pattern(size.pattern, name, type));
    in.emplace_back(gpu, n, type).fill(patterns.back());
  }
  const gpu_values out(gpu, n, type);
  const element_step program[] = {
    {operation::multiply, 0, 1, 1, 3}, {operation::add, 3, 2, 2, 3}, {operation::tanh, 3, 3, 3, 3}};
  const cuda::mixed_input inputs[] = {in[0].input(), in[1].input(), in[2].input()};
  const auto run = [&](std::size_t) {
    cuda::elementwise(gpu.main_stream(), program, n, inputs, 1, out.output());
  };
  run(0);
  std::vector<float> expected(size.pattern);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = std::tanh(patterns[0][i] * patterns[1][i] + patterns[2][i]);
  memory_result result{
    .what = name_of("chain tanh(a * b + c)", type), .elements = n, .goal = operation_goal};
  result.bytes = 4.0 * static_cast<double>(n * size_of(type));
  result.fault = out.differs(expected, rounding_of(type), 0);
  return beside.beside(std::move(result), run);
}

/// Returns the loss of a row of logits, and replaces the logits by their gradient.
double row_loss(std::span<float> row, std::size_t label) {
  double sum = 0;
  for (const float x : row)
    sum += std::exp(static_cast<double>(x));
  const auto loss = std::log(sum) - static_cast<double>(row[label]);
  for (auto& x : row)
    x = static_cast<float>(std::exp(static_cast<double>(x)) / sum);
  row[label] -= 1;
  return loss;
}

memory_result measure_loss(cuda::device& gpu, const copies& beside, const gpu_sizes& size) {
  const auto classes = size.columns;
  const auto rows = size.elements / classes;
  const auto known = std::max<std::size_t>(size.pattern / classes, 1);
  auto pattern = random_pattern(known * classes, "logits");
  gpu_values logits(gpu, rows * classes);
  const gpu_values gradient(gpu, rows * classes);
  logits.fill(pattern);
  std::vector<double> losses;
  for (std::size_t i = 0; i < known; ++i)
    losses.push_back(row_loss(std::span{pattern}.subspan(i * classes, classes), i % classes));
  std::vector<std::int32_t> labels;
  double expected = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    labels.push_back(static_cast<std::int32_t>(i % known % classes));
    expected += losses[i % known];
  }
  const auto where = gpu.main_stream();
  const cuda::buffer<std::int32_t> there(gpu, rows);
  const cuda::buffer<double> row_space(gpu, 3 * rows);
  const cuda::buffer<double> space(gpu, cuda::sum_space);
  const cuda::buffer<double> sums(gpu, 3);
  gpu.copy_in(where, there.data(), labels.data(), there.bytes());
  const auto run = [&](std::size_t) {
    cuda::softmax_cross_entropy(where,
                                {rows,
                                 classes,
                                 logits.input(),
                                 there.data(),
                                 {},
                                 1,
                                 gradient.floats(),
                                 row_space.data(),
                                 space.data()},
                                {sums.data(), nullptr}, {sums.data() + 1, nullptr},
                                {sums.data() + 2, nullptr});
  };
  run(0);
  double loss = 0;
  gpu.copy_out(where, &loss, sums.data(), sizeof loss);
  gpu.synchronize(where);
  memory_result result{.what = "softmax, cross-entropy and gradient, float32",
                       .elements = rows * classes,
                       .goal = operation_goal};
  result.bytes = 2.0 * static_cast<double>(rows * classes * sizeof(float));
  result.fault = gradient.differs(pattern, 1e-6, 1e-5);
  if (!(std::abs(loss - expected) <= 1e-6 * expected))
    result.fault = fmt::format("the loss is {}; expected {}", loss, expected);
  return beside.beside(std::move(result), run);
}

struct moments {
  double mean = 0;
  double deviation = 1;

  explicit moments(std::span<const float> row) {
    const auto n = static_cast<double>(row.size());
    double squares = 0;
    for (const float x : row)
      mean += static_cast<double>(x) / n;
    for (const float x : row)
      squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean) / n;
    deviation = std::sqrt(squares + epsilon);
  }
};

/// Measures the layer normalization of rows, or its gradient.
memory_result measure_norm(cuda::device& gpu, const copies& beside, const gpu_sizes& size,
                           dtype type, bool backward) {
  const auto columns = size.columns;
  const auto rows = size.elements / columns;
  const auto known = std::max<std::size_t>(size.pattern / columns, 1) * columns;
  const auto xs = random_pattern(known, "rows", type);
  const auto dys = random_pattern(known, "gradient of rows", type);
  gpu_values x(gpu, rows * columns, type);
  gpu_values dy(gpu, backward ? rows * columns : 0, type);
  const gpu_values out(gpu, rows * columns, type);
  x.fill(xs);
  if (backward)
    dy.fill(dys);
  const auto run = [&](std::size_t) {
    if (backward)
      cuda::normalize_rows_gradient(gpu.main_stream(), rows, columns, dy.input(), x.input(),
                                    epsilon, out.output());
    else
      cuda::normalize_rows(gpu.main_stream(), rows, columns, x.input(), epsilon, out.output());
  };
  run(0);
  std::vector<float> expected(known);
  for (std::size_t begin = 0; begin < known; begin += columns) {
    const auto row = std::span{xs}.subspan(begin, columns);
    const auto d = std::span{dys}.subspan(begin, columns);
    const moments m(row);
    const auto y = [&](std::size_t i) {
      return (static_cast<double>(row[i]) - m.mean) / m.deviation;
    };
    double mean = 0;
    double projected = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      mean += static_cast<double>(d[i]) / static_cast<double>(columns);
      projected += static_cast<double>(d[i]) * y(i) / static_cast<double>(columns);
    }
    for (std::size_t i = 0; i < columns; ++i)
      expected[begin + i] = static_cast<float>(
        backward ? (static_cast<double>(d[i]) - mean - y(i) * projected) / m.deviation : y(i));
  }
  memory_result result{
    .what = name_of(backward ? "gradient of layer normalization" : "layer normalization", type),
    .elements = rows * columns,
    .goal = operation_goal};
  result.bytes = (backward ? 3.0 : 2.0) * static_cast<double>(rows * columns * size_of(type));
  result.fault = out.differs(expected, 10 * rounding_of(type), rounding_of(type));
  return beside.beside(std::move(result), run);
}

} // namespace

std::vector<memory_result> measure_memory(cuda::device& gpu, const gpu_bench_options& options,
                                          std::vector<std::string>& missing) {
  const auto& size = options.sizes;
  const copies beside(gpu, options);
  auto result = beside.alone();
  const auto add = [&](std::string_view what, auto f) {
    try {
      result.push_back(f());
    } catch (const device_error& error) {
      missing.push_back(fmt::format("{}: {}", what, error.what()));
    }
  };
  using kind = optimizer_kind;
  for (const auto& [name, rule] :
       {std::pair{"update by SGD with momentum", optimizer{.kind = kind::momentum}},
        std::pair{"update by AdamW", optimizer{.kind = kind::adamw, .weight_decay = 0.01F}}})
    add(name, [&] { return measure_update(gpu, beside, size, name, rule); });
  for (const auto type : {dtype::float32, dtype::bfloat16})
    add("chain", [&] { return measure_chain(gpu, beside, size, type); });
  add("softmax and cross-entropy", [&] { return measure_loss(gpu, beside, size); });
  for (const auto type : {dtype::float32, dtype::bfloat16})
    for (const bool backward : {false, true})
      add("layer normalization", [&] { return measure_norm(gpu, beside, size, type, backward); });
  return result;
}

} // namespace troupe::bench
