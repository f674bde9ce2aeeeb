#include "kernels/cuda/conversions.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/gpus.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/narrow_float.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/narrow.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

// Tests of 16-bit types on a GPU.

namespace {

/// Products of matrices of sequences, with a normalization between them. Large scores would enlarge
/// each rounding error. With a factor of 0.3, gradients in 16 bits have an error of a tenth, also
/// on the CPU.
void build_attention(model& m) {
  auto& g = m.g;
  const auto x = g.placeholder("x", {shape::batch, 5, 6});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto project = [&](expression y, const std::string& name) {
    return add_bias(dense(y, g.variable(name + ".weight", {6, 6})),
                    g.variable(name + ".bias", {6}));
  };
  const auto q = scale(project(x, "q"), 0.03);
  const auto mixed =
    batched_matmul(softmax(batched_matmul(q, project(x, "k"), false, true)), project(x, "v"));
  const auto y = multiply_rows(normalize_rows(x + gelu(mixed), 1e-5), g.variable("gain", {6}));
  const auto logits = dense(reshape(y, {shape::batch, 30}), g.variable("head", {3, 30}),
                            g.variable("head_bias", {3}));
  m.loss = softmax_cross_entropy(logits, labels);
  m.fetches = {logits};
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_mixed_precision)

BOOST_AUTO_TEST_CASE(conversions_have_the_bits_of_the_cpu) {
  for (const auto type : narrow_types)
    for (const auto n : element_counts) {
      const auto x = random_floats(n, "x");
      const auto expected = narrowed(type, x);
      const auto y = random_floats(n / 2, "y");
      in_all_orders([&] {
        const device_array<float> from(x);
        const device_array<std::uint16_t> narrow(n);
        const device_array<float> back(n);
        const device_array<float> other_from(y);
        const device_array<std::uint16_t> other(n / 2);
        const cuda::converted all[] = {
          {from.data(), dtype::float32, narrow.data(), type, n},
          {other_from.data(), dtype::float32, other.data(), type, n / 2}};
        const auto before = launches();
        cuda::convert({}, all);
        BOOST_TEST(launches() - before == 1U); // one launch for both conversions
        const cuda::converted again[] = {{narrow.data(), type, back.data(), dtype::float32, n}};
        cuda::convert({}, again);
        BOOST_TEST(narrow.values() == expected, boost::test_tools::per_element());
        BOOST_TEST(other.values() == narrowed(type, y), boost::test_tools::per_element());
        BOOST_TEST(same_bits(back.values(), widened_all(type, expected)));
      });
    }
}

BOOST_AUTO_TEST_CASE(more_conversions_than_one_launch_has) {
  constexpr std::size_t n = cuda::most_conversions + 3;
  const auto x = random_floats(n, "x");
  const device_array<float> from(x);
  const device_array<std::uint16_t> to(n);
  std::vector<cuda::converted> all;
  for (std::size_t i = 0; i < n; ++i)
    all.push_back({from.data() + i, dtype::float32, to.data() + i, dtype::bfloat16, 1});
  const auto before = launches();
  cuda::convert({}, all);
  BOOST_TEST(launches() - before == 2U);
  BOOST_TEST(to.values() == narrowed(dtype::bfloat16, x), boost::test_tools::per_element());
}

// Computes 0.3 (x * y) with any mix of types. The computation is in float32, and the result is
// rounded once.
BOOST_AUTO_TEST_CASE(chains_of_mixed_types) {
  const element_step program[] = {{operation::multiply, 0, 1, 0, 2},
                                  {operation::scale, 2, 2, 2, 2, 0.3}};
  for (const auto type : narrow_types)
    for (const auto n : element_counts) {
      const auto x = narrowed(type, random_floats(n, "x"));
      const auto y = random_floats(n, "y");
      const auto wide = widened_all(type, x);
      std::vector<float> expected(n);
      for (std::size_t i = 0; i < n; ++i)
        expected[i] = 0.3F * (wide[i] * y[i]);
      in_all_orders([&] {
        const device_array<std::uint16_t> dx(x);
        const device_array<float> dy(y);
        const device_array<float> out(n);
        const cuda::mixed_input inputs[] = {{dx.data(), type}, {dy.data(), dtype::float32}};
        cuda::elementwise({}, program, n, inputs, 1, {out.data(), dtype::float32});
        BOOST_TEST(same_bits(out.values(), expected), n);
        cuda::elementwise({}, program, n, inputs, 1, {dx.data(), type}); // in place
        BOOST_TEST(dx.values() == narrowed(type, expected), boost::test_tools::per_element());
      });
    }
}

BOOST_AUTO_TEST_CASE(biases_of_mixed_types) {
  for (const auto type : narrow_types)
    for (const std::size_t rows : {0, 1, 33})
      for (const std::size_t columns : {1, 31, 257}) {
        const auto n = rows * columns;
        const auto x = random_floats(n, "x");
        const auto b = random_floats(columns, "b");
        const auto y = narrowed(type, random_floats(n, "y"));
        const auto wide = widened_all(type, y);
        std::vector<float> expected(n);
        for (std::size_t i = 0; i < n; ++i)
          expected[i] = wide[i] > 0 ? x[i] + b[i % columns] : 0;
        const device_array<float> dx(x);
        const device_array<float> db(b);
        const device_array<std::uint16_t> dy(y);
        const device_array<std::uint16_t> out(n);
        cuda::by_channel({}, cuda::channel_operation::add,
                         {n,
                          columns,
                          1,
                          dx.data(),
                          db.data(),
                          {operation::relu_gradient, dy.data(), type},
                          out.data(),
                          dtype::float32,
                          type});
        BOOST_TEST(out.values() == narrowed(type, expected), boost::test_tools::per_element());
      }
}

BOOST_AUTO_TEST_CASE(dense_models) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_classifier(m);
    check_mixed(gpu, m, 5);
  });
}

BOOST_AUTO_TEST_CASE(convolutional_networks) {
  model m;
  build_network(m);
  simulated_device gpu{1};
  check_mixed(gpu, m, 4);
}

BOOST_AUTO_TEST_CASE(attention) {
  with_all_devices([](simulated_device& gpu) {
    model m;
    build_attention(m);
    check_mixed(gpu, m, 3);
  });
}

BOOST_AUTO_TEST_CASE(causal_attention_of_sequences) {
  model m;
  build_sequences(m);
  simulated_device gpu{1};
  check_mixed(gpu, m, 4);
}

// A batch of 279 rows needs padded copies, and a batch of 512 does not.
BOOST_AUTO_TEST_CASE(fewer_rows_need_more_work_space) {
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, 264});
  const auto labels = m.g.placeholder("labels", {shape::batch}, dtype::int32);
  m.loss = softmax_cross_entropy(dense(x, m.g.variable("w", {272, 264})), labels);
  simulated_device gpu;
  cuda::executor there(gpu,
                       plan_for(m, cuda::gpu_plan_options(), dtype::bfloat16, std::size_t{512}));
  troupe::executor<float> here(plan_for(m, cpu_plan_options(), dtype::bfloat16, std::size_t{512}));
  for (const std::size_t rows : {512, 511, 279}) {
    m.draw(rows, 272);
    const auto actual = run(m, there);
    const auto expected = run(m, here);
    check_close(actual.gradient, as_doubles(expected.gradient), 0.02, 0.02, "gradient");
  }
}

// The first step casts all weights. It is one launch for any number of layers.
BOOST_AUTO_TEST_CASE(weights_are_cast_in_one_launch) {
  std::size_t before = 0;
  for (const std::size_t layers : {2, 9}) {
    model m;
    auto y = m.g.placeholder("x", {shape::batch, 4});
    for (std::size_t i = 0; i < layers; ++i)
      y = dense(y, m.g.variable("w" + std::to_string(i), {4, 4}));
    m.fetches = {sum_last(y)};
    m.draw(3, 2);
    simulated_device gpu;
    cuda::executor there(gpu, plan_for(m, cuda::gpu_plan_options(), dtype::bfloat16, 3));
    run(m, there);
    const auto first = launches();
    run(m, there);
    const auto count = launches() - first;
    if (before != 0)
      BOOST_TEST(count == before); // products do not count as launches of kernels
    before = count;
  }
}

BOOST_AUTO_TEST_CASE(memory_is_known_before_it_is_allocated) {
  for (const auto build : {build_classifier, build_network}) {
    model m;
    build(m);
    simulated_device gpu;
    const auto what = plan_for(m, cuda::gpu_plan_options(), dtype::bfloat16, 8);
    const cuda::executor there(gpu, what);
    BOOST_TEST(gpu.allocated_bytes() == cuda::executor::memory_bytes(*what));
    BOOST_TEST(gpu.pinned_bytes() == cuda::executor::pinned_bytes(*what));
  }
}

BOOST_AUTO_TEST_CASE(a_gpu_without_bfloat16) {
  model m;
  build_classifier(m);
  const auto open = [](std::size_t) {
    auto gpu = std::make_unique<simulated_device>();
    gpu->refused_type = dtype::bfloat16;
    return gpu;
  };
  const auto gpus = cuda::make_gpus(open);
  const auto brain = plan_for(m, cuda::gpu_plan_options(), dtype::bfloat16, 3);
  const auto names_the_remedy = [](const device_error& error) {
    return std::string(error.what()).find("precision: FLOAT32 or FLOAT16") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(gpus->check(0, *brain), device_error, names_the_remedy);
  BOOST_CHECK_EXCEPTION(gpus->make_executor(0, brain, brain), device_error, names_the_remedy);
  gpus->check(0, *plan_for(m, cuda::gpu_plan_options(), dtype::float16, 3));
  gpus->check(0, *m.plan_for(cuda::gpu_plan_options(), 3));
}

BOOST_AUTO_TEST_SUITE_END()
