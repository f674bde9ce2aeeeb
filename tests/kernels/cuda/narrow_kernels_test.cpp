#include "kernels/cuda/convolution.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/executor_state.hpp"
#include "kernels/cuda/losses.hpp"
#include "kernels/cuda/movement.hpp"
#include "kernels/cuda/normalization.hpp"
#include "kernels/cuda/reductions.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/narrow.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::cuda;
using namespace troupe::test;

// A kernel with operands of 16 bits must compute the same as with float32 operands of equal values,
// and round the result once. So the bits are compared. Other tests compare the kernels of float32
// with a reference. Convolutions of 16 bits use tensor cores, which add up in another order, so
// they have a tolerance. On a GPU, all products of tensor cores are added up in another order.

namespace {

using arrays = std::vector<mixed_input>;

/// Launches a kernel with some inputs and a result of n elements.
struct narrow_launch {
  std::vector<std::size_t> inputs;
  std::size_t n = 0;
  std::function<void(const arrays&, mixed_output)> run;
};

/// Inputs of one type, in device memory: random values, rounded to 16 bits. Another `name` gives
/// other values.
struct inputs_of {
  inputs_of(const narrow_launch& x, dtype type, const std::string& name) {
    for (std::size_t i = 0; i < x.inputs.size(); ++i) {
      const auto bits = narrowed(type, random_floats(x.inputs[i], name + std::to_string(i)));
      const auto values = widened_all(type, bits);
      narrow.push_back(std::make_unique<device_array<std::uint16_t>>(bits));
      wide.push_back(std::make_unique<device_array<float>>(values));
      narrow_inputs.emplace_back(narrow.back()->data(), type);
      wide_inputs.emplace_back(wide.back()->data());
    }
  }

  std::vector<std::unique_ptr<device_array<std::uint16_t>>> narrow;
  std::vector<std::unique_ptr<device_array<float>>> wide;
  arrays narrow_inputs;
  arrays wide_inputs;
};

/// Half of the distance between 1 and the next number of 16 bits: the largest relative error of a
/// rounded number.
double rounding_of(dtype type) {
  return type == dtype::bfloat16 ? 0x1p-8 : 0x1p-11;
}

double largest(const std::vector<double>& x) {
  double result = 0;
  for (const double v : x)
    result = std::max(result, std::fabs(v));
  return result;
}

/// Sums of float32 whose terms are added up in another order differ by less than this, relative to
/// the largest sum.
constexpr double order_tolerance = 1e-5;

/// Checks a kernel whose result has the type of its inputs. With float32, the kernel adds up in
/// another order.
void check_narrow_product(const std::string& name, const narrow_launch& x) {
  for (const auto type : narrow_types) {
    const inputs_of in(x, type, name);
    const device_array<float> expected(x.n);
    const device_array<std::uint16_t> out(x.n);
    in_all_orders([&] {
      x.run(in.wide_inputs, expected.data());
      x.run(in.narrow_inputs, {out.data(), type});
      const auto sums = as_doubles(expected.values());
      check_close(widened_all(type, out.values()), sums, rounding_of(type),
                  order_tolerance * largest(sums), name);
    });
  }
}

/// Like check_narrow_product(), for a kernel whose results are float32.
void check_product_sums(const std::string& name, const std::vector<std::size_t>& inputs,
                        std::size_t n, const std::function<void(const arrays&, float*)>& run) {
  const narrow_launch x{inputs, n, {}};
  for (const auto type : narrow_types) {
    const inputs_of in(x, type, name);
    const device_array<float> expected(n);
    const device_array<float> out(n);
    in_all_orders([&] {
      run(in.wide_inputs, expected.data());
      run(in.narrow_inputs, out.data());
      const auto sums = as_doubles(expected.values());
      check_close(out.values(), sums, order_tolerance, order_tolerance * largest(sums), name);
    });
  }
}

/// Checks a kernel whose result has the type of its inputs.
void check_narrow(const std::string& name, const narrow_launch& x) {
  for (const auto type : narrow_types) {
    const inputs_of in(x, type, name);
    const device_array<float> expected(x.n);
    const device_array<std::uint16_t> out(x.n);
    in_all_orders([&] {
      x.run(in.wide_inputs, expected.data());
      x.run(in.narrow_inputs, {out.data(), type});
      BOOST_TEST_CONTEXT(name << ", " << to_string(type) << ", " << x.n << " elements") {
        BOOST_TEST(out.values() == narrowed(type, expected.values()),
                   boost::test_tools::per_element());
      }
    });
  }
}

/// Checks a kernel whose results have the type T.
template <class T>
void check_sums(const std::string& name, const std::vector<std::size_t>& inputs, std::size_t n,
                const std::function<void(const arrays&, T*)>& run) {
  const narrow_launch x{inputs, n, {}};
  for (const auto type : narrow_types) {
    const inputs_of in(x, type, name);
    const device_array<T> expected(n);
    const device_array<T> out(n);
    in_all_orders([&] {
      run(in.wide_inputs, expected.data());
      run(in.narrow_inputs, out.data());
      BOOST_TEST_CONTEXT(name << ", " << to_string(type) << ", " << n << " elements") {
        BOOST_TEST(out.values() == expected.values(), boost::test_tools::per_element());
      }
    });
  }
}

/// Checks that a launch uses tensor cores if and only if its operands have 16 bits.
void check_tensor_cores(const narrow_launch& x) {
  for (const auto type : narrow_types) {
    const inputs_of in(x, type, "x");
    const device_array<float> wide(x.n);
    const device_array<std::uint16_t> narrow(x.n);
    const auto before = tensor_products();
    x.run(in.wide_inputs, wide.data());
    BOOST_TEST(tensor_products() == before);
    x.run(in.narrow_inputs, {narrow.data(), type});
    BOOST_TEST(tensor_products() > before);
  }
}

images result_of(const images& in, std::size_t channels, const window& how) {
  return {in.count, channels, static_cast<std::size_t>(how.rows(static_cast<int>(in.height))),
          static_cast<std::size_t>(how.columns(static_cast<int>(in.width)))};
}

std::size_t elements(const images& x) {
  return x.count * x.per_image();
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_narrow_kernels)

BOOST_AUTO_TEST_CASE(moves) {
  for (const auto n : element_counts) {
    if (n > 0)
      check_narrow("transpose", {{3 * n}, 3 * n, [&](const arrays& x, mixed_output out) {
                                   const std::size_t extents[] = {n, 3};
                                   const std::size_t strides[] = {1, n};
                                   gather_strided({}, extents, strides, 3 * n, x[0], out);
                                 }});
    check_narrow("copy", {{2 * n}, 2 * n, [&](const arrays& x, mixed_output out) {
                            fill_zero({}, 2 * n, out);
                            copy_rows({}, {2, n / 2, x[0], n, out, n});
                          }});
    check_narrow("reverse", {{4 * n}, 4 * n, [&](const arrays& x, mixed_output out) {
                               reverse({}, 2, n, 2, x[0], out);
                             }});
    check_narrow("dropout", {{n}, n, [&](const arrays& x, mixed_output out) {
                               const device_array<std::uint64_t> key{std::vector<std::uint64_t>{5}};
                               dropout({}, n, x[0], 0.3, key.data(), out);
                             }});
  }
}

BOOST_AUTO_TEST_CASE(pooling) {
  const images in{3, 2, 9, 7};
  for (const auto& how : windows) {
    const auto out = result_of(in, 2, how);
    const auto n = elements(in);
    const auto m = elements(out);
    check_narrow("max_pool_select", {{n, n}, m, [&](const arrays& x, mixed_output y) {
                                       max_pool_select({}, in, out, how, x[0], x[1], y);
                                     }});
    const auto gradient = [&](const arrays& x, mixed_output y) {
      max_pool_gradient({}, in, out, how, x[0], x[1], y);
    };
    check_narrow("max_pool_gradient", {{m, n}, n, gradient});
    check_sums<float>("max_pool_gradient", {m, n}, n, gradient);
    check_narrow("average_pool", {{n}, m, [&](const arrays& x, mixed_output y) {
                                    average_pool({}, in, out, how, x[0], y);
                                  }});
    check_narrow("average_pool_gradient", {{m}, n, [&](const arrays& x, mixed_output y) {
                                             average_pool_gradient({}, in, out, how, x[0], y);
                                           }});
  }
}

BOOST_AUTO_TEST_CASE(layer_normalization) {
  for (const std::size_t rows : {0, 1, 9})
    for (const std::size_t columns : {1, 31, 33, 257}) {
      const auto n = rows * columns;
      check_narrow("normalize_rows", {{n}, n, [&](const arrays& x, mixed_output out) {
                                        normalize_rows({}, rows, columns, x[0], 1e-5, out);
                                      }});
      check_narrow("normalize_rows_gradient", {{n, n}, n, [&](const arrays& x, mixed_output out) {
                                                 normalize_rows_gradient({}, rows, columns, x[0],
                                                                         x[1], 1e-5, out);
                                               }});
    }
}

BOOST_AUTO_TEST_CASE(batch_normalization) {
  for (const std::size_t count : {0, 1, 5})
    for (const std::size_t pixels : {1, 17, 300, 5000}) {
      const channel_sizes size{count, 3, pixels};
      const auto n = count * 3 * pixels;
      const device_array<float> moments{std::vector<float>{0.5F, -1, 0, 2, 1, 0.25F}};
      const device_array<double> space(channel_space(size));
      check_sums<float>("channel_moments", {n}, 6, [&](const arrays& x, float* out) {
        channel_moments({}, size, x[0], space.data(), out);
      });
      check_narrow("normalize_channels", {{n}, n, [&](const arrays& x, mixed_output out) {
                                            normalize_channels({}, size, x[0], moments.data(), 1e-5,
                                                               out);
                                          }});
      check_narrow("normalize_channels_gradient",
                   {{n, n}, n, [&](const arrays& x, mixed_output out) {
                      normalize_channels_gradient({}, size, x[0], x[1], moments.data(), 1e-5, {},
                                                  space.data(), out);
                    }});
      check_sums<double>("channel_sums", {n}, 6, [&](const arrays& x, double* out) {
        channel_sums({}, size, x[0], space.data(), out);
      });
      check_sums<double>("channel_products", {n, n}, 6, [&](const arrays& x, double* out) {
        channel_products({}, size, x[0], x[1], moments.data(), space.data(), out);
      });
      check_sums<float>("sum_channels", {n}, 3, [&](const arrays& x, float* out) {
        sum_channels({}, size, x[0], space.data(), out);
      });
    }
}

BOOST_AUTO_TEST_CASE(reductions) {
  for (const auto n : element_counts) {
    check_sums<double>("sum", {n}, 1, [&](const arrays& x, double* out) {
      const device_array<double> space(sum_space);
      sum({}, n, x[0], 0.5, space.data(), {out, nullptr});
    });
    check_sums<float>("sum_leading", {3 * n}, 3, [&](const arrays& x, float* out) {
      const device_array<double> space(row_parts(n, 3) * 3);
      sum_leading({}, n, 3, x[0], space.data(), out);
    });
    check_sums<float>("sum_last", {3 * n}, 3,
                      [&](const arrays& x, float* out) { sum_last({}, 3, n, x[0], out); });
  }
}

// Convolutions with a bias, with a function of the result, and with a derivative. The operand of
// the derivative has 16 bits or is float32.
BOOST_AUTO_TEST_CASE(convolutions) {
  const images in{3, 4, 9, 7};
  for (const auto& how : windows)
    for (const std::int64_t groups : {1, 2}) {
      auto grouped = how;
      grouped.groups = groups;
      const auto out = result_of(in, 6, grouped);
      const auto n = elements(in);
      const auto m = elements(out);
      const auto w = 6 * 4 / static_cast<std::size_t>(groups * 1)
        * static_cast<std::size_t>(how.height * how.width);
      const device_array<float> bias{random_floats(6, "bias")};
      const device_array<float> operand{random_floats(n, "operand")};
      check_narrow_product(
        "conv2d",
        {{n, w}, m, [&](const arrays& x, mixed_output y) {
           conv2d({}, in, out, grouped, x[0], x[1], bias.data(), {operation::relu, nullptr}, y);
         }});
      const auto gradient = [&](const arrays& x, const mixed_input& other, mixed_output y) {
        conv2d_input_gradient({}, in, out, grouped, x[0], x[1], nullptr,
                              {operation::relu_gradient, other.data, other.type}, y);
      };
      check_narrow_product(
        "conv2d_input_gradient",
        {{m, w, n}, n, [&](const arrays& x, mixed_output y) { gradient(x, x[2], y); }});
      check_narrow_product(
        "conv2d_input_gradient",
        {{m, w}, n, [&](const arrays& x, mixed_output y) { gradient(x, operand.data(), y); }});
      check_product_sums("conv2d_weight_gradient", {n, m}, w, [&](const arrays& x, float* y) {
        const device_array<float> space(weight_gradient_parts(in, out, grouped) * w);
        conv2d_weight_gradient({}, in, out, grouped, x[0], x[1], space.data(), y);
      });
    }
}

// The result is larger than one tile (64, 128). Sums have several steps of 16 terms.
BOOST_AUTO_TEST_CASE(convolutions_larger_than_a_tile) {
  const images in{2, 5, 12, 9};
  const window how{3, 3, 1, 1, 1, 1};
  const auto out = result_of(in, 70, how);
  const std::size_t w = 70 * 5 * 9;
  check_narrow_product("conv2d",
                       {{elements(in), w}, elements(out), [&](const arrays& x, mixed_output y) {
                          conv2d({}, in, out, how, x[0], x[1], nullptr, {}, y);
                        }});
  check_narrow_product("conv2d_input_gradient",
                       {{elements(out), w}, elements(in), [&](const arrays& x, mixed_output y) {
                          conv2d_input_gradient({}, in, out, how, x[0], x[1], nullptr, {}, y);
                        }});
  const images few{2, 16, 12, 9};
  const auto results = result_of(few, 70, how);
  const std::size_t weights = 70 * 16 * 9;
  check_product_sums("conv2d_weight_gradient", {elements(few), elements(results)}, weights,
                     [&](const arrays& x, float* y) {
                       const device_array<float> space(weight_gradient_parts(few, results, how)
                                                       * weights);
                       conv2d_weight_gradient({}, few, results, how, x[0], x[1], space.data(), y);
                     });
}

BOOST_AUTO_TEST_CASE(tensor_cores_multiply_16_bits) {
  const images size{1, 2, 5, 5};
  const window how{1, 1, 1, 1};
  const auto n = elements(size);
  check_tensor_cores({{n, 4}, n, [&](const arrays& x, mixed_output y) {
                        conv2d({}, size, size, how, x[0], x[1], nullptr, {}, y);
                      }});
  check_tensor_cores({{n, 4}, n, [&](const arrays& x, mixed_output y) {
                        conv2d_input_gradient({}, size, size, how, x[0], x[1], nullptr, {}, y);
                      }});
  check_tensor_cores({{n, n}, 4, [&](const arrays& x, mixed_output) {
                        const device_array<float> space(weight_gradient_parts(size, size, how) * 4);
                        const device_array<float> y(4);
                        conv2d_weight_gradient({}, size, size, how, x[0], x[1], space.data(),
                                               y.data());
                      }});
}

BOOST_AUTO_TEST_CASE(operands_of_different_types) {
  const device_array<float> x(3);
  const device_array<std::uint16_t> y(3);
  BOOST_CHECK_THROW(normalize_rows({}, 1, 3, x.data(), 1e-5, {y.data(), dtype::bfloat16}),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(softmax_and_losses) {
  for (const std::size_t rows : {0, 1, 9, 64})
    for (const std::size_t columns : {1, 31, 33, 257}) {
      const auto n = rows * columns;
      check_sums<float>("softmax", {n}, n, [&](const arrays& x, float* out) {
        softmax({}, rows, columns, 0, x[0], out);
      });
      std::vector<std::int32_t> labels(rows);
      for (std::size_t i = 0; i < rows; ++i)
        labels[i] = static_cast<std::int32_t>(i % columns);
      const device_array<std::int32_t> device_labels(labels);
      const device_array<double> row_space(3 * rows);
      const device_array<double> space(sum_space);
      const auto loss = [&](const arrays& x, float* gradient, double* results) {
        softmax_cross_entropy({},
                              {rows,
                               columns,
                               x[0],
                               device_labels.data(),
                               {0.1, 2},
                               0.5,
                               gradient,
                               row_space.data(),
                               space.data()},
                              {results, nullptr}, {results + 1, nullptr}, {results + 2, nullptr});
      };
      check_sums<double>("loss", {n}, 3,
                         [&](const arrays& x, double* out) { loss(x, nullptr, out); });
      check_sums<float>("gradient of the loss", {n}, n, [&](const arrays& x, float* out) {
        const device_array<double> results(3);
        loss(x, out, results.data());
      });
    }
  check_sums<float>("causal_softmax", {2 * 33 * 33}, 2 * 33 * 33,
                    [&](const arrays& x, float* out) { softmax({}, 2 * 33, 33, 33, x[0], out); });
}

BOOST_AUTO_TEST_CASE(attention_without_conversions) {
  model m;
  const auto x = m.g.placeholder("x", {shape::batch, 5, 8});
  const auto qkv = dense_layer(x, "qkv", 24);
  const auto part = [&](std::int64_t i) { return slice(qkv, 2, 8 * i, 8 * (i + 1)); };
  m.loss = sum(causal_attention(part(0), part(1), part(2), 2));
  auto options = gpu_plan_options();
  options.precision = dtype::bfloat16;
  const auto what = m.plan_for(options, 5);
  const widened_instructions code{*what, is_native};
  std::size_t steps = 0;
  for (std::size_t i = 0; i < code.instructions.size(); ++i)
    if (traits_of(code.instructions[i].op).kind == operation_kind::attention) {
      ++steps;
      BOOST_TEST((code.instructions[i].inputs.back().type == dtype::bfloat16));
      BOOST_TEST(code.around[i].before.size() + code.around[i].after.size() == 0U);
    }
  BOOST_TEST(steps == 2U);
}

BOOST_AUTO_TEST_CASE(a_network_without_conversions) {
  model m;
  build_network(m);
  auto options = gpu_plan_options();
  options.precision = dtype::bfloat16;
  const auto what = m.plan_for(options, 5);
  const widened_instructions code{*what, is_native};
  std::map<operation, std::size_t> native;
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    const auto op = code.instructions[i].op;
    BOOST_TEST(code.around[i].before.size() + code.around[i].after.size() == 0U, to_string(op));
    ++native[op];
  }
  for (const auto op :
       {operation::conv2d, operation::conv2d_weight_gradient, operation::max_pool_gradient,
        operation::average_pool, operation::channel_moments, operation::normalize_channels_gradient,
        operation::sum_leading, operation::softmax_cross_entropy})
    BOOST_TEST(native[op] > 0U, to_string(op));
}

BOOST_AUTO_TEST_SUITE_END()
