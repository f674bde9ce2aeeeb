#include "kernels/cuda/elementwise.hpp"

#include "kernels/cpu/dropout.hpp"
#include "kernels/cpu/elementwise.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

using namespace troupe;
using namespace troupe::test;

// The GPU uses the same element-wise functions as the CPU, so all results have the same bits.

namespace {

/// Random operands, including values that comparisons treat specially.
std::vector<float> operands(std::size_t n, std::string_view name) {
  auto result = random_floats(n, name);
  const float special[] = {0,  -0.0F, std::numeric_limits<float>::infinity(),
                           90, -90,   std::numeric_limits<float>::quiet_NaN()};
  for (std::size_t i = 0; i < n; i += 7)
    result[i] = special[(i / 7 + name.size()) % std::size(special)];
  return result;
}

/// True if all bits are the same. Any NaN equals any other NaN, because the compiler decides which
/// of two NaNs a sum keeps.
bool same_numbers(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) || (x != x && y != y);
  });
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_elementwise)

BOOST_AUTO_TEST_CASE(every_operation_has_the_bits_of_the_cpu) {
  for (std::size_t k = 0; k < operation_count; ++k) {
    const auto op = static_cast<operation>(k);
    auto* const loop = cpu::loop_of<float>(op);
    if (loop == nullptr)
      continue;
    for (const std::size_t n : {1, 255, 997}) {
      const auto a = operands(n, "a");
      const auto b = operands(n, "bb");
      const auto c = operands(n, "ccc");
      std::vector<float> expected(n);
      loop(n, a.data(), b.data(), c.data(), 0.3F, expected.data());
      const device_array<float> x(a);
      const device_array<float> y(b);
      const device_array<float> z(c);
      const device_array<float> out(n);
      const float* const inputs[] = {x.data(), y.data(), z.data()};
      const element_step program[] = {{op, 0, 1, 2, 3, 0.3}};
      cuda::elementwise({}, program, n, inputs, 0, out.data());
      BOOST_TEST(same_numbers(out.values(), expected), to_string(op) << " of " << n);
    }
  }
}

BOOST_AUTO_TEST_CASE(chains_over_all_sizes) {
  // Computes tanh(x y) + 0.5 max(x, sigmoid(y)) and writes it over x. Values 2 and 3 are
  // temporaries.
  const element_step program[] = {
    {operation::multiply, 0, 1, 0, 2},   {operation::tanh, 2, 2, 2, 2},
    {operation::sigmoid, 1, 1, 1, 3},    {operation::maximum, 0, 3, 0, 3},
    {operation::scale, 3, 3, 3, 3, 0.5}, {operation::add, 2, 3, 2, 2}};
  for (const auto n : element_counts) {
    const auto a = operands(n, "a");
    const auto b = operands(n, "bb");
    std::vector<float> expected(n);
    std::vector<float> space(2 * cpu::elementwise_block);
    std::vector<const float*> registers{a.data(), b.data(), nullptr, nullptr};
    cpu::elementwise<float>(program, n, registers, 2, space.data(), expected.data());
    in_all_orders([&] {
      const device_array<float> x(a);
      const device_array<float> y(b);
      const float* const inputs[] = {x.data(), y.data()};
      cuda::elementwise({}, program, n, inputs, 2, x.data());
      BOOST_TEST(same_numbers(x.values(), expected), n);
    });
  }
}

BOOST_AUTO_TEST_CASE(chains_that_do_not_fit_are_refused) {
  const std::vector<element_step> program(cuda::most_chain_steps + 1);
  const device_array<float> x(1);
  const float* const inputs[] = {x.data()};
  BOOST_CHECK_THROW(cuda::elementwise({}, program, 1, inputs, 0, x.data()), std::invalid_argument);
  const std::vector<const float*> many(cuda::most_chain_inputs + 1);
  BOOST_CHECK_THROW(cuda::elementwise({}, {program.data(), 1}, 1, many, 0, x.data()),
                    std::invalid_argument);
  BOOST_CHECK_THROW(cuda::elementwise({}, {program.data(), 1}, 1, inputs,
                                      cuda::most_chain_temporaries + 1, x.data()),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(bias_and_activation) {
  using cuda::channel_operation;
  for (const std::size_t rows : {0, 1, 33, 67})
    for (const std::size_t columns : {1, 31, 257}) {
      const auto n = rows * columns;
      const auto x = operands(n, "x");
      const auto b = random_floats(columns, "b");
      const auto y = operands(n, "y");
      const device_array<float> dx(x);
      const device_array<float> db(b);
      const device_array<float> dy(y);
      for (const auto after : {operation::end, operation::relu, operation::tanh_gradient}) {
        const auto epilogue =
          after == operation::end ? std::nullopt : std::optional<operation>(after);
        std::vector<float> expected(n);
        cpu::add_bias<float>(rows, columns, x.data(), b.data(), epilogue, y.data(),
                             expected.data());
        const device_array<float> out(n);
        cuda::by_channel({}, channel_operation::add,
                         {n, columns, 1, dx.data(), db.data(), {after, dy.data()}, out.data()});
        BOOST_TEST(same_numbers(out.values(), expected));
        // Here, the bias has one value per row. So the matrix is treated as an image with one
        // channel per row, of `columns` pixels each.
        const auto per_row = random_floats(rows, "b");
        const device_array<float> dr(per_row);
        cpu::add_row_bias<float>(rows, columns, x.data(), per_row.data(), epilogue, y.data(),
                                 expected.data());
        cuda::by_channel({}, channel_operation::add,
                         {n, rows, columns, dx.data(), dr.data(), {after, dy.data()}, out.data()});
        BOOST_TEST(same_numbers(out.values(), expected));
      }
      const device_array<float> out(n);
      cuda::by_channel({}, channel_operation::multiply,
                       {n, columns, 1, dx.data(), db.data(), {}, out.data()});
      const auto products = out.values();
      cuda::by_channel({}, channel_operation::broadcast,
                       {n, columns, 1, nullptr, db.data(), {}, out.data()});
      const auto copies = out.values();
      std::vector<float> expected_products(n);
      std::vector<float> expected_copies(n);
      for (std::size_t i = 0; i < n; ++i) {
        expected_products[i] = x[i] * b[i % columns];
        expected_copies[i] = b[i % columns];
      }
      BOOST_TEST(same_numbers(products, expected_products));
      BOOST_TEST(same_numbers(copies, expected_copies));
    }
}

BOOST_AUTO_TEST_CASE(conversions) {
  for (const auto n : element_counts) {
    std::vector<std::int32_t> labels(n);
    std::iota(labels.begin(), labels.end(), -5);
    const device_array<std::int32_t> x(labels);
    const device_array<float> y(n);
    cuda::to_float({}, n, x.data(), y.data());
    BOOST_TEST((y.values() == std::vector<float>(labels.begin(), labels.end())));
    cuda::fill_zero({}, n, y.data());
    BOOST_TEST((y.values() == std::vector<float>(n)));
  }
  const device_array<float> one(std::vector<float>{0.3F});
  const device_array<double> same(1);
  cuda::to_double({}, one.data(), same.data());
  BOOST_TEST(same.values()[0] == static_cast<double>(0.3F));
}

BOOST_AUTO_TEST_CASE(dropout_masks_are_those_of_the_cpu) {
  for (const auto n : element_counts) {
    const auto x = random_floats(n, "x");
    const std::uint64_t key = 0x0123456789abcdef;
    std::vector<float> expected(n);
    cpu::dropout<float>(n, x.data(), 0.3, key, expected.data());
    const device_array<float> in_place(x);
    const device_array<std::uint64_t> keys(std::vector{key});
    cuda::dropout({}, n, in_place.data(), 0.3, keys.data(), in_place.data());
    BOOST_TEST(same_numbers(in_place.values(), expected));
  }
}

BOOST_AUTO_TEST_SUITE_END()
