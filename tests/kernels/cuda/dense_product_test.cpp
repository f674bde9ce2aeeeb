#include "kernels/cuda/dense_product.hpp"

#include "kernels/cpu/conversions.hpp"
#include "kernels/cpu/math.hpp"
#include "kernels/cuda/epilogue.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_dense_product)

namespace {

/// Random operands of a product, rounded to their type. There is also a bias, and an operand for
/// the epilogue (the functions that are fused with the product).
struct layer {
  layer(std::size_t rows, std::size_t columns, std::size_t sum, dtype of)
    : m(rows), n(columns), k(sum), type(of), a(drawn(m * k, "a", of)), b(drawn(k * n, "b", of)),
      bias(drawn(n, "bias", dtype::float32)), operand(drawn(m * n, "operand", of)) {}

  static std::vector<float> drawn(std::size_t count, const char* name, dtype of) {
    const auto x = random_values(count, name);
    const std::vector<float> result(x.begin(), x.end());
    return is_narrow(of) ? widened(of, narrowed(of, result)) : result;
  }
  static std::vector<std::byte> narrowed(dtype of, const std::vector<float>& x) {
    std::vector<std::byte> result(x.size() * size_of(of));
    if (is_narrow(of))
      cpu::narrow(of, x.size(), x.data(), result.data());
    else
      std::copy_n(reinterpret_cast<const std::byte*>(x.data()), result.size(), result.data());
    return result;
  }
  static std::vector<float> widened(dtype of, const std::vector<std::byte>& x) {
    std::vector<float> result(x.size() / size_of(of));
    if (is_narrow(of))
      cpu::widen(of, result.size(), x.data(), result.data());
    else
      std::copy_n(x.data(), x.size(), reinterpret_cast<std::byte*>(result.data()));
    return result;
  }

  std::size_t m, n, k;
  dtype type;
  std::vector<float> a, b, bias, operand;
};

cuda::buffer<std::byte> sent(cuda::device& gpu, dtype type, const std::vector<float>& x) {
  const auto bytes = layer::narrowed(type, x);
  cuda::buffer<std::byte> result(gpu, bytes.size());
  gpu.copy_in(gpu.main_stream(), result.data(), bytes.data(), bytes.size());
  gpu.synchronize(gpu.main_stream()); // the copy may read `bytes` until then
  return result;
}

/// Computes the layer on the device. The result has the type `result`. The bias begins `gap`
/// elements after an aligned address.
std::vector<float> computed(cuda::device& gpu, const layer& x, dtype result, bool with_bias,
                            operation after, std::size_t gap = 0, bool transposed = false) {
  auto stored = x.a;
  for (std::size_t i = 0; transposed && i < stored.size(); ++i)
    stored[i % x.k * x.m + i / x.k] = x.a[i];
  const auto a = sent(gpu, x.type, stored);
  const auto b = sent(gpu, x.type, x.b);
  std::vector<float> shifted(gap);
  shifted.insert(shifted.end(), x.bias.begin(), x.bias.end());
  const auto bias = sent(gpu, dtype::float32, shifted);
  const auto operand = sent(gpu, x.type, x.operand);
  const cuda::buffer<std::byte> c(gpu, x.m * x.n * size_of(result));
  const auto where = gpu.main_stream();
  const auto* const values = reinterpret_cast<const float*>(bias.data()) + gap;
  const bool reads = after == operation::relu_gradient || after == operation::add;
  const cuda::product what{.m = x.m,
                           .n = x.n,
                           .k = x.k,
                           .transpose_a = transposed,
                           .a = a.data(),
                           .b = b.data(),
                           .c = c.data(),
                           .operands = x.type,
                           .result = result};
  const cuda::buffer<std::byte> space(
    gpu, cuda::product_space(what, with_bias || after != operation::end));
  cuda::multiply(
    gpu, where,
    {what, with_bias ? values : nullptr, {after, reads ? operand.data() : nullptr, x.type}},
    space.data());
  std::vector<std::byte> bytes(c.size());
  gpu.copy_out(where, bytes.data(), c.data(), c.size());
  gpu.synchronize(where);
  return layer::widened(result, bytes);
}

std::vector<double> expected(const layer& x, bool with_bias, operation after) {
  std::vector<double> result(x.m * x.n);
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t p = 0; p < x.k; ++p)
      result[i] +=
        static_cast<double>(x.a[i / x.n * x.k + p]) * static_cast<double>(x.b[p * x.n + i % x.n]);
    result[i] += with_bias ? static_cast<double>(x.bias[i % x.n]) : 0;
    const auto operand = static_cast<double>(x.operand[i]);
    switch (after) {
    case operation::relu:
      result[i] = cpu::relu(result[i]);
      break;
    case operation::gelu:
      result[i] = cpu::gelu(result[i]);
      break;
    case operation::relu_gradient:
      result[i] = cpu::relu_gradient(result[i], operand);
      break;
    case operation::add:
      result[i] += operand;
      break;
    default:
      break;
    }
  }
  return result;
}

/// The tolerance for a result of this type. It allows for the rounding of the result, and for the
/// rounding of the bias or of the product to 16 bits.
double tolerance(dtype result) {
  return result == dtype::bfloat16 ? 1.0 / 128 : result == dtype::float16 ? 1.0 / 1024 : 1e-5;
}

constexpr operation endings[] = {operation::end, operation::relu, operation::gelu,
                                 operation::relu_gradient, operation::add};

} // namespace

BOOST_AUTO_TEST_CASE(results_with_and_without_epilogues) {
  with_all_devices([](simulated_device& gpu) {
    for (const auto type : {dtype::float32, dtype::bfloat16, dtype::float16})
      for (const auto result : {type, dtype::float32})
        for (const auto& [m, n, k] : {std::array<std::size_t, 3>{1, 1, 1}, {5, 7, 3}, {33, 8, 17}})
          for (const bool with_bias : {false, true})
            for (const auto after : endings) {
              const layer x(m, n, k, type);
              const auto wanted = expected(x, with_bias, after);
              for (const bool epilogues : {true, false}) {
                gpu.has_epilogues = epilogues;
                check_close(computed(gpu, x, result, with_bias, after), wanted, tolerance(result),
                            3 * tolerance(result), "layer");
              }
            }
  });
}

// Pairs of counts: products with an epilogue, and launches of kernels. With an epilogue, a product
// needs no kernel after it. If its result has 16 bits, a kernel converts the bias first. Without an
// epilogue, a kernel follows the product.
BOOST_AUTO_TEST_CASE(epilogues_replace_launches) {
  const auto run = [](dtype type, bool with_bias, operation after, std::size_t gap, bool has) {
    simulated_device gpu;
    gpu.has_epilogues = has;
    const auto before = launches();
    computed(gpu, {4, 8, 3, type}, type, with_bias, after, gap);
    return std::pair{gpu.epilogues(), launches() - before};
  };
  using pair = std::pair<std::size_t, std::size_t>;
  const auto wide = dtype::float32;
  const auto narrow = dtype::bfloat16;
  BOOST_TEST((run(wide, true, operation::relu, 0, true) == pair{1, 0}));
  BOOST_TEST((run(wide, true, operation::end, 0, true) == pair{1, 0}));
  BOOST_TEST((run(wide, false, operation::relu, 0, true) == pair{1, 0}));
  BOOST_TEST((run(narrow, true, operation::relu, 0, true) == pair{1, 1}));
  BOOST_TEST((run(narrow, false, operation::relu, 0, true) == pair{1, 0}));
  BOOST_TEST((run(wide, true, operation::add, 0, true) == pair{1, 0}));
  BOOST_TEST((run(narrow, false, operation::add, 0, true) == pair{1, 0}));
  // These are not fused: another function, a bias that is not aligned, a device without epilogues.
  BOOST_TEST((run(wide, true, operation::gelu, 0, true) == pair{0, 1}));
  BOOST_TEST((run(wide, true, operation::relu_gradient, 0, true) == pair{0, 1}));
  BOOST_TEST((run(wide, true, operation::relu, 1, true) == pair{0, 1}));
  // The converted bias is an aligned copy.
  BOOST_TEST((run(narrow, true, operation::relu, 1, true) == pair{1, 1}));
  BOOST_TEST((run(wide, true, operation::relu, 0, false) == pair{0, 1}));
  BOOST_TEST((run(narrow, true, operation::relu, 0, false) == pair{0, 1}));
  BOOST_TEST((run(wide, false, operation::end, 0, true) == pair{0, 0}));
}

// Large matrices of 16 bits whose rows are not aligned go through padded copies: operands before
// the product, the result after it.
BOOST_AUTO_TEST_CASE(rows_are_aligned) {
  simulated_device gpu;
  const auto launches_of = [&](std::size_t m, std::size_t n, std::size_t k, dtype type,
                               dtype result, bool transposed = false,
                               operation after = operation::end) {
    const layer x(m, n, k, type);
    const bool biased = after != operation::end;
    const auto before = launches();
    const auto y = computed(gpu, x, result, biased, after, 0, transposed);
    check_close(y, expected(x, biased, after), tolerance(result), 3 * tolerance(result), "product");
    return launches() - before;
  };
  const auto narrow = dtype::bfloat16;
  BOOST_TEST(launches_of(300, 261, 257, narrow, narrow) == 3);
  BOOST_TEST(launches_of(300, 261, 257, narrow, narrow, true) == 3); // a is (257, 300)
  BOOST_TEST(launches_of(304, 261, 264, narrow, narrow, true) == 2);
  BOOST_TEST(launches_of(300, 264, 264, narrow, narrow, true) == 1);
  BOOST_TEST(launches_of(300, 261, 264, narrow, narrow) == 2);
  BOOST_TEST(launches_of(300, 261, 264, narrow, dtype::float32) == 1);
  BOOST_TEST(launches_of(300, 264, 264, narrow, narrow) == 0);
  // The bias and the function after it are computed in the result.
  for (const auto after : {operation::gelu, operation::add, operation::relu})
    BOOST_TEST(launches_of(300, 261, 257, narrow, narrow, false, after) == 4);
  // With few rows, copies would not save time. Products of float32 need no copies.
  BOOST_TEST(launches_of(64, 261, 264, narrow, narrow) == 0);
  BOOST_TEST(launches_of(300, 261, 257, dtype::float32, dtype::float32) == 0);
}

BOOST_AUTO_TEST_CASE(what_has_no_epilogue) {
  cuda::product x{.m = 4, .n = 8, .k = 3, .after = operation::relu};
  BOOST_TEST(cuda::has_epilogue(x));
  for (const auto change :
       {+[](cuda::product& y) { y.after = operation::end; },
        +[](cuda::product& y) { y.after = operation::gelu; },
        +[](cuda::product& y) { y.batch = 2; }, +[](cuda::product& y) { y.m = 0; },
        +[](cuda::product& y) { y.n = 0; }, +[](cuda::product& y) { y.k = 0; }}) {
    auto changed = x;
    change(changed);
    BOOST_TEST(!cuda::has_epilogue(changed));
  }
  x.after = operation::end;
  x.addend = &x;
  BOOST_TEST(cuda::has_epilogue(x));
  simulated_device gpu;
  x.batch = 2;
  BOOST_CHECK_THROW(gpu.multiply(gpu.main_stream(), x), simulation_error);
}

// Numbers that are not finite must reach the result, so that a diverged run does not look healthy.
BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_pass) {
  for (const bool epilogues : {true, false}) {
    simulated_device gpu;
    gpu.has_epilogues = epilogues;
    layer x(2, 4, 3, dtype::float32);
    x.a[0] = std::numeric_limits<float>::quiet_NaN();
    const auto y = computed(gpu, x, dtype::float32, true, operation::relu);
    BOOST_TEST(std::isnan(y[0]));
    BOOST_TEST(std::isfinite(y[4]));
  }
}

BOOST_AUTO_TEST_SUITE_END()
