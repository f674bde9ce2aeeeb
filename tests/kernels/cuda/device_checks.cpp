#include "tests/kernels/cuda/device_checks.hpp"

#include "kernels/cuda/gemm_call.hpp"
#include "kernels/cuda/updates.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/optimizers/optimizer.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

namespace troupe::test {

namespace {

double largest(const std::vector<double>& x) {
  double result = 0;
  for (const double v : x)
    result = std::max(result, std::fabs(v));
  return result;
}

} // namespace

executed execute_on(cuda::device& gpu, const graph& g, const leaves& values, expression loss,
                    const std::vector<expression>& fetches, bool gradients, expression correct) {
  auto options = cuda::gpu_plan_options();
  options.max_rows = std::max<std::size_t>(values.rows, 1);
  options.loss = loss;
  options.correct = correct;
  options.fetches = fetches;
  options.gradients = gradients;
  cuda::executor run(gpu, std::make_shared<const plan>(g, options));

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

namespace {

/// Compares a product with the reference. Writes NaN to the result first, so that an element that
/// is not computed is noticed.
void check_product(cuda::device& gpu, cuda::product x) {
  const auto a = random_floats(x.batch * x.m * x.k, "a");
  const auto b = random_floats(x.batch * x.k * x.n, "b");
  std::vector<double> expected(x.batch * x.m * x.n);
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (std::size_t p = 0; p < x.k; ++p) {
      const auto row = i / x.n % x.m;
      const auto column = i % x.n;
      const auto matrix = i / (x.m * x.n);
      expected[i] +=
        static_cast<double>(a[matrix * x.m * x.k + (x.transpose_a ? p * x.m + row : row * x.k + p)])
        * static_cast<double>(
          b[matrix * x.k * x.n + (x.transpose_b ? column * x.k + p : p * x.n + column)]);
    }
  std::vector<float> result(expected.size(), std::numeric_limits<float>::quiet_NaN());
  const cuda::buffer<float> da(gpu, a.size());
  const cuda::buffer<float> db(gpu, b.size());
  const cuda::buffer<float> dc(gpu, result.size());
  const auto where = gpu.main_stream();
  const auto copy_in = [&](const cuda::buffer<float>& to, const std::vector<float>& from) {
    if (!from.empty())
      gpu.copy_in(where, to.data(), from.data(), to.bytes());
  };
  copy_in(da, a);
  copy_in(db, b);
  copy_in(dc, result);
  x.a = da.data();
  x.b = db.data();
  x.c = dc.data();
  gpu.multiply(where, x);
  gpu.copy_out(where, result.data(), dc.data(), dc.bytes());
  gpu.synchronize(where);
  // Sums of at most 129 products of a few units. Each sum has 129 roundings of 2^-24.
  check_close(result, expected, 1e-5, 1e-4, "product " + cuda::to_string(x));
}

} // namespace

void check_products(cuda::device& gpu) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const std::size_t k : {129, 1, 0})
        for (const std::size_t batch : {1, 3}) {
          cuda::product x{.m = 67, .n = 33, .k = k};
          x.transpose_a = transpose_a;
          x.transpose_b = transpose_b;
          x.batch = batch;
          check_product(gpu, x);
        }
}

void check_on(cuda::device& gpu, const graph& g, expression y, double tolerance) {
  const auto what = [&](std::size_t rows) {
    return y.name() + " with " + std::to_string(rows) + " rows";
  };
  for (const std::size_t rows : {0, 1, 2, 7, 33}) {
    const auto values = random_leaves(g, rows);
    const auto expected = reference_value(g, y.id(), values);
    check_close(execute_on(gpu, g, values, {}, {y}, false).fetches[0], expected, tolerance,
                tolerance * largest(expected), what(rows));
  }
  auto differentiated = g;
  const auto loss = to_scalar({differentiated, y.id()});
  for (const std::size_t rows : {1, 7}) {
    const auto values = random_leaves(g, rows);
    const auto expected = execute<double>(differentiated, values, loss, {}, true);
    const auto actual = execute_on(gpu, differentiated, values, loss, {}, true);
    check_close(std::vector{actual.loss}, std::vector{expected.loss}, 10 * tolerance,
                10 * tolerance, "loss of " + what(rows));
    check_close(actual.gradient, expected.gradient, 10 * tolerance,
                10 * tolerance * largest(expected.gradient), "gradient of " + what(rows));
  }
}

const std::vector<window> windows{
  {3, 3}, {2, 3, 2, 1}, {3, 2, 1, 2, 1, 1}, {1, 1, 2, 2}, {5, 5, 3, 2, 2, 2}};

namespace {

// A convolution adds up at most 1,000 products in float. Its errors grow like the root of this
// number, times 2^-24. They are relative to the largest element.
constexpr double convolution_tolerance = 4e-6;
// All other operations add up in double, or add up only a few products in float. So they round only
// a few times.
constexpr double tolerance = 2e-6;

} // namespace

void check_convolutions(cuda::device& gpu) {
  auto all = windows;
  all.push_back({.height = 3, .width = 2, .pad_y = 3, .dilation_y = 2, .dilation_x = 3});
  all.push_back({.height = 2, .width = 3, .stride_y = 2, .pad_x = 1, .dilation_x = 2});
  for (const auto& how : all)
    for (const std::int64_t groups : {1, 2}) {
      auto grouped = how;
      grouped.groups = groups;
      graph g;
      const auto x = g.placeholder("x", {shape::batch, 4, 9, 7});
      const auto w = g.variable("w", {6, 4 / groups, how.height, how.width});
      const auto y = add_channel_bias(conv2d(x, w, grouped), g.variable("b", {6}));
      check_on(gpu, g, tanh(y), convolution_tolerance);
    }
}

void check_large_convolutions(cuda::device& gpu) {
  const auto check = [&](const graph& g, expression y, std::size_t rows) {
    const auto values = random_leaves(g, rows);
    const auto loss = to_scalar(y);
    const auto expected = execute<double>(g, values, loss, {y}, true);
    const auto actual = execute_on(gpu, g, values, loss, {y}, true);
    check_close(actual.fetches[0], expected.fetches[0], convolution_tolerance,
                convolution_tolerance * largest(expected.fetches[0]), "a convolution");
    check_close(actual.gradient, expected.gradient, 10 * convolution_tolerance,
                10 * convolution_tolerance * largest(expected.gradient), "its gradients");
  };
  // The kernels choose the shapes of their tiles by the numbers of filters and channels. Together,
  // these pairs use all shapes.
  struct filters {
    std::int64_t first, second;
  };
  for (const auto& n : {filters{70, 3}, filters{64, 20}, filters{10, 64}}) {
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 9, 12, 11});
    const auto h = conv2d(x, g.variable("w", {n.first, 9, 3, 3}), {3, 3});
    check(g, conv2d(h, g.variable("v", {n.second, n.first, 2, 2}), {2, 2, 2, 2}), 9);
  }
  // The gradient of these weights has more parts than a block adds up at once.
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 1, 33, 33});
  check(g, conv2d(x, g.variable("w", {3, 1, 2, 2}), {2, 2}), 9);
}

void check_pooling(cuda::device& gpu) {
  auto all = windows;
  for (auto how : windows) {
    how.ceil_mode = true;
    all.push_back(how);
  }
  all.push_back({2, 2, 2, 2});
  all.push_back({.height = 3,
                 .width = 2,
                 .stride_y = 4,
                 .stride_x = 3,
                 .pad_y = 1,
                 .pad_x = 1,
                 .ceil_mode = true});
  for (const auto& how : all) {
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 3, 9, 7});
    const auto scaled = multiply_channels(x, g.variable("scale", {3}));
    check_on(gpu, g, max_pool(scaled, how), tolerance);
    check_on(gpu, g, average_pool(scaled, how), tolerance);
  }
}

void check_batch_normalization(cuda::device& gpu) {
  // With 33 images of 17 * 17 or 18 * 18 pixels, the sum over a channel has two parts
  // (channel_parts). With 18 * 18 pixels, it is added up in packs.
  for (const std::int64_t pixels : {1, 5, 17, 18}) {
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 3, pixels, pixels});
    const auto scaled = multiply_channels(x, g.variable("scale", {3}));
    const batch_norm_variables variables{g.variable("gain", {3}), g.variable("bias", {3}),
                                         g.variable("mean", {3}, {}, parameter_kind::state),
                                         g.variable("variance", {3}, {}, parameter_kind::state)};
    check_on(gpu, g, batch_norm(scaled, variables), tolerance * 10);
  }
}

void check_channels(cuda::device& gpu) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 3, 4, 5});
  const auto y = multiply(x, broadcast_channels(sum_channels(x), x.shape()));
  check_on(gpu, g, add_channel_bias(y, g.variable("b", {3})), tolerance);
}

void check_moves(cuda::device& gpu) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4, 3, 5});
  const auto y = multiply(x, broadcast_leading(g.variable("w", {5}), x.shape()));
  check_on(gpu, g, transpose(y, {0, 2, 3, 1}), tolerance);
  check_on(gpu, g, slice(y, 1, 1, 3), tolerance);
  for (const std::size_t axis : {1, 2, 3})
    check_on(gpu, g, reverse(y, axis), tolerance);
  check_on(gpu, g, place(y, 3, 2, {shape::batch, 4, 3, 9}), tolerance);
  check_on(gpu, g, concat({y, slice(y, 2, 0, 2), y}, 2), tolerance);
  const blend_table table{{{2, 0.25}, {0, 0.75}}, {{1, -2}}, {}, {{0, 1}, {1, 2}, {2, 3}}};
  for (const std::size_t axis : {1, 2, 3})
    check_on(gpu, g, blend(y, axis, table), tolerance);
}

void check_layer_normalization(cuda::device& gpu) {
  for (const std::int64_t columns : {1, 31, 33, 70}) {
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 3, columns});
    const auto y = multiply_rows(x, g.variable("w", {columns}));
    check_on(gpu, g, layer_norm(y, g.variable("gain", {columns}), g.variable("bias", {columns})),
             10 * tolerance);
  }
}

void check_long_rows(cuda::device& gpu) {
  for (const std::int64_t columns : {256, 259, 1000, 1026, 4100, 8194, 8200}) {
    graph g;
    const auto y =
      multiply_rows(g.placeholder("x", {shape::batch, columns}), g.variable("w", {columns}));
    check_on(gpu, g, softmax(y), 10 * tolerance);
    check_on(gpu, g, layer_norm(y, g.variable("gain", {columns}), g.variable("bias", {columns})),
             10 * tolerance);
    model m;
    const auto labels = m.g.placeholder("labels", {shape::batch}, dtype::int32);
    const auto logits =
      multiply_rows(m.g.placeholder("x", {shape::batch, columns}), m.g.variable("w", {columns}));
    m.loss = softmax_cross_entropy(logits, labels, {0.1, std::nullopt});
    m.correct = softmax_correct(logits, labels);
    check_against_cpu(gpu, m, columns, 1e-5);
  }
}

void check_attention(cuda::device& gpu) {
  graph g;
  const auto ids = g.placeholder("ids", {shape::batch, 12}, dtype::int32);
  const auto x = embedding(g.variable("table", {3, 8}), ids);
  const auto q = dense(x, g.variable("q", {8, 8}));
  const auto k = dense(x, g.variable("k", {8, 8}));
  check_on(gpu, g, causal_attention(q, k, x, 2), 10 * tolerance);
  const auto qkv = dense(x, g.variable("qkv", {24, 8}));
  const auto part = [&](std::int64_t i) { return slice(qkv, 2, 8 * i, 8 * (i + 1)); };
  check_on(gpu, g, multi_head_attention(part(0), part(1), part(2), 2, false), 10 * tolerance);
  const auto by_head = reshape(x, {shape::batch, 2, 12, 4});
  check_on(gpu, g, attention(by_head, by_head, tanh(by_head), 2, 0.4, true), 10 * tolerance);
}

void check_recurrence(cuda::device& gpu) {
  // 33 samples with 67 units each need several blocks.
  constexpr std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 5}, {4, 5}, {3, 67}};
  for (const auto how : {cell::rnn, cell::lstm, cell::gru})
    for (const auto& [time, hidden] : sizes) {
      graph g;
      const auto x = g.placeholder("x", {shape::batch, time, 3});
      check_on(gpu, g, recurrent_layer(x, "layer", hidden, how), 10 * tolerance);
    }
}

void build_classifier(model& m) {
  const auto x = m.g.placeholder("x", {shape::batch, 37});
  const auto labels = m.g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto h = dropout(dense_layer(x, "dense_1", 29, activation::relu), 0.2, "drop");
  const auto k = dense_layer(h, "dense_2", 17, activation::tanh);
  const auto logits =
    dense_layer(dense_layer(k, "dense_3", 17, activation::gelu) + k, "dense_4", 5);
  m.loss = softmax_cross_entropy(logits, labels) + 0.01 * sum(multiply(k, k));
  m.correct = softmax_correct(logits, labels);
  m.fetches = {logits, softmax(logits), sum_last(k)};
}

void build_network(model& m) {
  auto& g = m.g;
  const auto x = g.placeholder("x", {shape::batch, 3, 10, 9});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto h = conv2d(x, g.variable("conv_1.weight", {8, 3, 3, 3}), {3, 3, 1, 1, 1, 1});
  const auto normal = batch_norm(h,
                                 {g.variable("gain", {8}), g.variable("bias", {8}),
                                  g.variable("mean", {8}, {}, parameter_kind::state),
                                  g.variable("variance", {8}, {}, parameter_kind::state)});
  const auto pooled = max_pool(relu(normal), {2, 2, 2, 2});
  const auto k = conv2d_layer(pooled, "conv_2", 6, {3, 3, 1, 1, 1, 1, 2}, activation::tanh);
  const auto logits = dense_layer(flatten(average_pool(k, {2, 2, 2, 2})), "dense", 4);
  m.loss = softmax_cross_entropy(logits, labels, {0.1, std::nullopt});
  m.correct = softmax_correct(logits, labels);
  m.fetches = {logits};
}

void build_sequences(model& m, std::int64_t length, std::int64_t width) {
  auto& g = m.g;
  const auto x = g.placeholder("x", {shape::batch, length, width});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto qkv = dense_layer(x, "qkv", 3 * width);
  const auto part = [&](std::int64_t i) { return slice(qkv, 2, width * i, width * (i + 1)); };
  // Large scores or logits would enlarge each rounding error.
  const auto y = causal_attention(scale(part(0), 0.03), part(1), part(2), 2);
  const auto logits =
    scale(dense_layer(reshape(y, {shape::batch, length * width}), "dense", 4), 0.03);
  m.loss = softmax_cross_entropy(logits, labels);
  m.fetches = {logits};
}

void check_same(const results& gpu, const results& cpu, double tolerance) {
  const auto scale = [](const std::vector<float>& x) {
    double result = 1e-3;
    for (const auto v : x)
      result = std::max(result, std::abs(static_cast<double>(v)));
    return result;
  };
  check_close(std::vector{gpu.result.loss}, std::vector{cpu.result.loss}, tolerance, tolerance,
              "loss");
  BOOST_TEST(gpu.result.correct == cpu.result.correct);
  BOOST_TEST(gpu.result.counted == cpu.result.counted);
  BOOST_TEST(gpu.buckets == cpu.buckets, boost::test_tools::per_element());
  check_close(gpu.gradient, as_doubles(cpu.gradient), tolerance, tolerance * scale(cpu.gradient),
              "gradient");
  for (std::size_t i = 0; i < cpu.fetched.size(); ++i)
    check_close(gpu.fetched[i], as_doubles(cpu.fetched[i]), tolerance,
                tolerance * scale(cpu.fetched[i]), "fetch " + std::to_string(i));
}

void check_against_cpu(cuda::device& gpu, model& m, std::int64_t classes, double tolerance) {
  constexpr std::size_t max_rows = 33;
  cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), max_rows));
  troupe::executor<float> here(m.plan_for(cpu_plan_options(), max_rows));
  for (const std::size_t rows : {33, 0, 1, 7}) {
    m.draw(rows, classes);
    check_same(run(m, there), run(m, here), tolerance);
  }
}

std::shared_ptr<const plan> plan_for(const model& m, plan_options options, dtype type,
                                     std::size_t rows) {
  options.precision = type;
  return m.plan_for(options, rows);
}

namespace {

double rounding_of(dtype type) {
  return type == dtype::bfloat16 ? 0x1p-8 : 0x1p-11;
}

/// The length of a - b, relative to b.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 1e-20;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

/// Random weights and feeds of a model. They depend only on the number of the batch.
struct batch_of {
  batch_of(std::uint64_t batch, std::size_t rows, void (*build)(model&)) {
    build(values);
    values.draw(rows, 5, batch);
    feeds = values.feeds();
  }
  model values;
  std::vector<feed<float>> feeds;
};

} // namespace

void check_mixed(cuda::device& gpu, model& m, std::int64_t classes, double roundings) {
  for (const auto type : {dtype::bfloat16, dtype::float16}) {
    const auto on_gpu = plan_for(m, cuda::gpu_plan_options(), type, 33);
    cuda::executor there(gpu, on_gpu);
    troupe::executor<float> here(plan_for(m, cpu_plan_options(), type, 33));
    const auto name = std::string(to_string(type));
    for (const std::size_t rows : {33, 0, 1, 7}) {
      m.draw(rows, classes);
      const auto actual = run(m, there);
      const auto expected = run(m, here);
      // Results go through six roundings. With epilogues, up to four biases are rounded, too
      // (dense_product.hpp).
      const double tolerance = roundings * rounding_of(type);
      BOOST_TEST(std::fabs(actual.result.loss - expected.result.loss)
                   <= tolerance * std::max(std::fabs(expected.result.loss), 1e-3),
                 name);
      BOOST_TEST(actual.result.counted == expected.result.counted);
      BOOST_TEST(actual.buckets == expected.buckets, boost::test_tools::per_element());
      const auto gradient = distance(actual.gradient, expected.gradient);
      BOOST_TEST(gradient <= tolerance, name << " " << rows << ": " << gradient);
      for (std::size_t i = 0; i < expected.fetched.size(); ++i)
        BOOST_TEST(distance(actual.fetched[i], expected.fetched[i]) <= tolerance, name);
    }
    const auto bytes = [](const plan& what) {
      return cuda::executor::memory_bytes(what) - cuda::product_bytes(what);
    };
    BOOST_TEST(bytes(*on_gpu) < bytes(*m.plan_for(cuda::gpu_plan_options(), 33)) * 3 / 2);
  }
}

std::vector<results> announced_steps(cuda::device& gpu, const std::shared_ptr<const plan>& what,
                                     const std::vector<announcing_step>& steps, std::size_t known,
                                     void (*build)(model&)) {
  cuda::executor there(gpu, what);
  std::vector<results> out;
  for (const auto& step : steps) {
    const batch_of own(step.batch, step.rows, build);
    const batch_of next(step.next, step.next_rows, build);
    results result;
    result.gradient.resize(what->parameters().size());
    const auto pointers = own.values.pointers();
    run_arguments<float> arguments;
    arguments.rows = step.rows;
    arguments.weights = pointers;
    arguments.feeds = own.feeds;
    arguments.gradient = result.gradient;
    arguments.batch = step.batch;
    arguments.next = {step.next, step.next_rows, std::span{next.feeds}.first(known)};
    result.result = there.run(arguments);
    out.push_back(std::move(result));
  }
  return out;
}

namespace {

/// Wraps a device_executor, so that run(m, executor) accepts it like any other executor.
struct whole_runs {
  std::unique_ptr<device_executor> on;

  const plan& what() const { return on->what(); }
  run_result run(const run_arguments<float>& x) { return on->advance(x).value(); }
  std::span<const float> fetched(std::size_t i) { return on->fetched(i); }
};

} // namespace

void check_workers(const gpu_set& gpus, double tolerance) {
  model m;
  build_classifier(m);
  m.draw(33, 5);
  const auto on_cpu = m.plan_for(cpu_plan_options(), 33);
  const auto make = [&] {
    plan_options options;
    options.fusion = &gpus.fusion();
    return whole_runs{gpus.make_executor(0, m.plan_for(options, 33), on_cpu)};
  };
  constexpr std::size_t steps = 4; // the first step is not recorded
  results out[2][steps];
  const auto work = [&](results(&own)[steps]) {
    auto worker = make();
    for (auto& x : own)
      x = run(m, worker);
  };
  std::thread first([&] { work(out[0]); });
  std::thread second([&] { work(out[1]); });
  first.join();
  second.join();
  for (const auto& own : out)
    for (const auto& x : own)
      BOOST_TEST(same_bits(x.gradient, out[0][0].gradient));
  whole_runs here{make_cpu_executor(on_cpu, 1)};
  check_same(out[0][0], run(m, here), tolerance);
}

void check_recordings(cuda::device& gpu) {
  model m;
  build_classifier(m);
  const auto what = m.plan_for(cuda::gpu_plan_options(), 33);
  cuda::executor there(gpu, what);
  cuda::executor by_step(gpu, what);
  for (std::uint64_t round = 0; round < 3; ++round)
    for (const std::size_t rows : {33, 7, 0}) {
      m.draw(rows, 5, round);
      const auto feeds = m.feeds();
      const auto pointers = m.pointers();
      const auto on_instruction = [](std::size_t) {};
      std::vector<float> expected(m.g.parameters().size());
      run_arguments<float> arguments;
      arguments.rows = rows;
      arguments.weights = pointers;
      arguments.feeds = feeds;
      arguments.seed = round;
      arguments.gradient = expected;
      arguments.on_instruction = on_instruction; // with a callback, nothing is recorded
      const auto same = by_step.run(arguments);
      arguments.on_instruction = {};
      for (const bool copied : {true, false}) {
        std::vector<float> gradient(expected.size());
        arguments.gradient = copied ? gradient : std::span<float>{};
        const auto result = there.run(arguments);
        BOOST_TEST(result.loss == same.loss);
        BOOST_TEST(result.correct == same.correct);
        BOOST_TEST(result.counted == same.counted);
        if (!copied)
          gpu.copy_out(there.where(), gradient.data(), there.gradient().data(),
                       gradient.size() * sizeof(float));
        BOOST_TEST(same_bits(gradient, expected));
      }
    }
}

void check_training(cuda::device& gpu, model& m, std::int64_t classes, double tolerance) {
  for (const auto kind : {optimizer_kind::nesterov, optimizer_kind::adamw}) {
    m.draw(33, classes);
    cuda::executor there(gpu, m.plan_for(cuda::gpu_plan_options(), 33));
    troupe::executor<float> here(m.plan_for(cpu_plan_options(), 33));
    const auto n = m.g.parameters().size();
    optimizer rule;
    rule.kind = kind;
    rule.weight_decay = 0.01F;
    std::vector<float> w;
    for (const auto& x : m.weights)
      w.insert(w.end(), x.begin(), x.end());
    std::vector<float> state(rule.slots() * n);
    std::vector<float> gradient(n);
    const cuda::buffer<float> device_state(gpu, n * rule.slots());
    const auto where = there.where();
    gpu.copy_in(where, device_state.data(), state.data(), device_state.bytes());
    gpu.copy_in(where, there.weights().data(), w.data(), n * sizeof(float));
    for (std::uint64_t step = 1; step <= 5; ++step) {
      m.draw(33, classes, step); // draws new feeds; its weights are not used
      const auto feeds = m.feeds();
      std::vector<const float*> pointers;
      for (const auto& entry : m.g.parameters().entries())
        pointers.push_back(w.data() + entry.offset);
      run_arguments<float> arguments;
      arguments.rows = 33;
      arguments.feeds = feeds;
      arguments.seed = step;
      const auto device_loss = there.run(arguments).loss;
      arguments.weights = pointers;
      arguments.gradient = gradient;
      const auto loss = here.run(arguments).loss;
      check_close(std::vector{device_loss}, std::vector{loss}, 1e-5, 1e-5, "loss");
      const update_arguments<float> update_here{.weights = w,
                                                .gradient = gradient,
                                                .state = state,
                                                .updated = w,
                                                .rate = 0.01,
                                                .scale = 1.0 / 33,
                                                .step = step};
      auto update_there = update_here;
      update_there.weights = there.weights();
      update_there.gradient = there.gradient();
      update_there.state = {device_state.data(), state.size()};
      update_there.updated = there.weights();
      update<float>(rule, update_here);
      cuda::update(where, rule, update_there, nullptr);
    }
    std::vector<float> result(n);
    gpu.copy_out(where, result.data(), there.weights().data(), n * sizeof(float));
    gpu.synchronize(where);
    // AdamW divides by the root of a mean of squares. If the gradients of an element nearly cancel,
    // the step still has the size of the learning rate. It then has the relative error of these
    // gradients, which is large.
    check_close(result, as_doubles(w), 1e-5, kind == optimizer_kind::adamw ? 1e-4 : tolerance,
                "weights after five steps");
  }
}

void check_regression(cuda::device& gpu) {
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, 9});
  const auto t = m.g.placeholder("t", {shape::batch, 1});
  const auto y = dense_layer(dense_layer(x, "hidden", 6, activation::sigmoid), "out", 1);
  m.loss = mean_squared_error(y, t);
  m.fetches = {y};
  check_against_cpu(gpu, m, 2);

  model two;
  const auto z = two.g.placeholder("x", {shape::batch, 9});
  const auto labels = two.g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto logit = dense_layer(z, "out", 1);
  two.loss = binary_cross_entropy(logit, to_float(labels, {shape::batch, 1}));
  two.correct = binary_correct(logit, labels);
  check_against_cpu(gpu, two, 2);
}

} // namespace troupe::test
