#include "kernels/cpu/sequences.hpp"
#include "kernels/cuda/movement.hpp"
#include "kernels/cuda/normalization.hpp"
#include "kernels/cuda/recurrence.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_sequences)

BOOST_AUTO_TEST_CASE(moves) {
  simulated_device gpu;
  check_moves(gpu);
}

BOOST_AUTO_TEST_CASE(layer_normalization) {
  simulated_device gpu;
  check_layer_normalization(gpu);
}

// The mean is much larger than the deviation, or squares do not fit in float32.
BOOST_AUTO_TEST_CASE(normalization_of_extreme_rows) {
  constexpr std::size_t columns = 64;
  for (const auto& [a, b] :
       {std::pair{1e6F, 1e6F + 0.0625F}, {1e5F, 1e5F + 0.0234F}, {2e19F, -2e19F}, {1e38F, 2e38F}}) {
    std::vector<float> x(columns);
    for (std::size_t i = 0; i < columns; ++i)
      x[i] = i % 3 == 0 ? a : b;
    const auto n = static_cast<double>(columns);
    double mean = 0;
    for (const float v : x)
      mean += static_cast<double>(v) / n;
    double squares = 0;
    for (const float v : x)
      squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
    const auto scale = static_cast<float>(1 / std::sqrt(squares / n + 1e-5));
    std::vector<double> expected;
    for (const float v : x)
      expected.push_back(static_cast<double>((v - static_cast<float>(mean)) * scale));
    const device_array<float> in(x);
    const device_array<float> out(columns);
    cuda::normalize_rows({}, 1, columns, in.data(), 1e-5, out.data());
    check_close(out.values(), expected, 1e-5, 1e-6, "normalize_rows");
  }
}

BOOST_AUTO_TEST_CASE(long_rows) {
  simulated_device gpu;
  check_long_rows(gpu);
}

BOOST_AUTO_TEST_CASE(attention) {
  simulated_device gpu;
  check_attention(gpu);
}

BOOST_AUTO_TEST_CASE(recurrence) {
  simulated_device gpu;
  check_recurrence(gpu);
}

// Some layers have more units than a block has threads. In other layers, the units do not fill the
// last warp.
BOOST_AUTO_TEST_CASE(recurrence_in_any_order_of_threads) {
  simulated_device gpu;
  const auto where = gpu.main_stream();
  for (const auto how : {cell::rnn, cell::lstm, cell::gru})
    for (const std::size_t hidden : {33, 260}) {
      const cpu::recurrence size{how, 2, 2, hidden};
      const auto rows = size.batch * size.time;
      const auto gates = size.gates() * hidden;
      const device_array<float> z(random_floats(rows * gates, "z"));
      const device_array<float> w(random_floats(gates * hidden, "w"));
      const device_array<float> b(random_floats(gates, "b"));
      const device_array<float> dh(random_floats(rows * hidden, "dh"));
      std::vector<float> first[2];
      in_all_orders([&] {
        const device_array<float> space(cuda::recurrence_space(size));
        const device_array<float> states(rows * size.stored() * hidden);
        cuda::recurrent(gpu, where, size, z.data(), w.data(), b.data(), states.data(),
                        space.data());
        // The work space is new, so that no value of the forward pass can be read.
        const device_array<float> new_space(cuda::recurrence_space(size));
        const device_array<float> out(rows * size.parts() * hidden);
        cuda::recurrent_gradient(gpu, where, size, dh.data(), states.data(), w.data(), out.data(),
                                 new_space.data());
        if (first[0].empty()) {
          first[0] = states.values();
          first[1] = out.values();
        }
        BOOST_TEST(same_bits(states.values(), first[0]));
        BOOST_TEST(same_bits(out.values(), first[1]));
      });
    }
}

// The weights are so small that rounding errors do not grow from step to step.
BOOST_AUTO_TEST_CASE(recurrence_of_all_sizes) {
  simulated_device gpu;
  const auto where = gpu.main_stream();
  for (const auto how : {cell::rnn, cell::lstm, cell::gru})
    for (const auto& [batch, time, hidden] : std::vector<std::array<std::size_t, 3>>{{0, 2, 3},
                                                                                     {1, 1, 1},
                                                                                     {31, 2, 3},
                                                                                     {33, 2, 3},
                                                                                     {255, 2, 3},
                                                                                     {257, 2, 3},
                                                                                     {997, 2, 3},
                                                                                     {2, 2, 31},
                                                                                     {2, 2, 32},
                                                                                     {2, 2, 255},
                                                                                     {2, 2, 256},
                                                                                     {2, 2, 257},
                                                                                     {2, 33, 5}}) {
      const cpu::recurrence size{how, batch, time, hidden};
      const auto rows = batch * time;
      const auto gates = size.gates() * hidden;
      const auto z = random_floats(rows * gates, "z");
      auto w = random_floats(gates * hidden, "w");
      for (auto& x : w)
        x /= static_cast<float>(hidden);
      const auto b = random_floats(gates, "b");
      const auto dh = random_floats(rows * hidden, "dh");
      std::vector<double> states(rows * size.stored() * hidden);
      std::vector<double> out(rows * size.parts() * hidden);
      std::vector<double> scratch(cpu::recurrent_scratch_elements<double>(size) + 8);
      const auto misplaced = reinterpret_cast<std::uintptr_t>(scratch.data()) / sizeof(double) % 8;
      auto* const aligned = scratch.data() + (8 - misplaced) % 8;
      cpu::recurrent<double>(size, as_doubles(z).data(), as_doubles(w).data(), as_doubles(b).data(),
                             states.data(), aligned);
      cpu::recurrent_gradient<double>(size, as_doubles(dh).data(), states.data(),
                                      as_doubles(w).data(), out.data(), aligned);
      const device_array<float> device_z(z);
      const device_array<float> device_w(w);
      const device_array<float> device_b(b);
      const device_array<float> device_dh(dh);
      const device_array<float> device_states(states.size());
      const device_array<float> device_out(out.size());
      const device_array<float> space(cuda::recurrence_space(size));
      cuda::recurrent(gpu, where, size, device_z.data(), device_w.data(), device_b.data(),
                      device_states.data(), space.data());
      check_close(device_states.values(), states, 1e-5, 1e-5, "states");
      cuda::recurrent_gradient(gpu, where, size, device_dh.data(), device_states.data(),
                               device_w.data(), device_out.data(), space.data());
      check_close(device_out.values(), out, 1e-5, 1e-5, "gradients");
    }
}

BOOST_AUTO_TEST_CASE(a_time_step_is_a_product_and_a_launch) {
  for (const auto how : {cell::rnn, cell::lstm, cell::gru})
    for (const std::size_t time : {0, 1, 2, 9}) {
      const cpu::recurrence size{how, 3, time, 7};
      const auto rows = size.batch * size.time;
      const auto gates = size.gates() * size.hidden;
      const device_array<float> z(random_floats(rows * gates, "z"));
      const device_array<float> w(random_floats(gates * size.hidden, "w"));
      const device_array<float> b(random_floats(gates, "b"));
      const device_array<float> dh(random_floats(rows * size.hidden, "dh"));
      const device_array<float> states(rows * size.stored() * size.hidden);
      const device_array<float> out(rows * size.parts() * size.hidden);
      const device_array<float> space(cuda::recurrence_space(size));
      simulated_device gpu;
      const auto before = launches();
      cuda::recurrent(gpu, gpu.main_stream(), size, z.data(), w.data(), b.data(), states.data(),
                      space.data());
      BOOST_TEST(launches() - before == time);
      const auto products = time > 0 ? time - 1 : 0;
      BOOST_TEST(gpu.single_submissions() == time + products);
      cuda::recurrent_gradient(gpu, gpu.main_stream(), size, dh.data(), states.data(), w.data(),
                               out.data(), space.data());
      BOOST_TEST(launches() - before == 2 * time);
      BOOST_TEST(gpu.single_submissions() == 2 * (time + products));
    }
}

BOOST_AUTO_TEST_CASE(slices_in_reverse_order) {
  for (const auto n : element_counts)
    for (const std::size_t inner : {1, 33}) {
      const std::size_t rows = n > 1000 ? 1 : 3;
      const auto x = random_floats(rows * n * inner, "x");
      std::vector<float> expected;
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = n; i-- > 0;)
          for (std::size_t j = 0; j < inner; ++j)
            expected.push_back(x[(r * n + i) * inner + j]);
      const device_array<float> from(x);
      const device_array<float> out(x.size());
      cuda::reverse({}, rows, n, inner, from.data(), out.data());
      BOOST_TEST(same_bits(out.values(), expected));
    }
}

BOOST_AUTO_TEST_CASE(tables) {
  for (const std::size_t n : {0, 1, 31, 256, 257, 600})
    for (const std::size_t columns : {1, 33}) {
      const std::size_t entries = 50;
      std::vector<std::int32_t> ids(n);
      for (std::size_t i = 0; i < n; ++i) // some ids are beyond the table
        ids[i] = static_cast<std::int32_t>(i * i % 53) - (i % 29 == 28 ? 100 : 0);
      const auto table = random_floats(entries * columns, "table");
      const auto dy = random_floats(n * columns, "dy");
      std::vector<float> rows(n * columns);
      std::vector<float> gradient(table.size());
      cpu::embedding<float>(ids, entries, {0, entries}, columns, table.data(), rows.data());
      cpu::embedding_gradient<float>(ids, entries, columns, {0, columns}, dy.data(),
                                     gradient.data());
      const device_array<std::int32_t> device_ids(ids);
      const device_array<float> device_table(table);
      const device_array<float> device_dy(dy);
      in_all_orders([&] {
        const device_array<float> out(rows.size());
        cuda::embedding({}, n, entries, columns, device_ids.data(), device_table.data(),
                        out.data());
        BOOST_TEST(same_bits(out.values(), rows));
        const device_array<std::uint64_t> space(cuda::embedding_gradient_space(n));
        const device_array<float> sums(table.size());
        cuda::embedding_gradient({}, n, entries, columns, device_ids.data(), device_dy.data(),
                                 space.data(), sums.data());
        BOOST_TEST(same_bits(sums.values(), gradient)); // the GPU adds up in the same order
      });
    }
}

// Some ids occur often, such as padding. The kernel loads several rows of an id before it adds
// them, and divides the columns into chunks. The bits are those of a sum of one row after the
// other.
BOOST_AUTO_TEST_CASE(gradients_of_frequent_ids) {
  constexpr std::size_t entries = 12;
  std::vector<std::int32_t> ids; // id k occurs counts[k] times; id 11 does not occur
  const std::size_t counts[] = {1, 7, 8, 9, 15, 16, 17, 0, 300, 24, 2};
  for (std::size_t turn = 0; turn < 300; ++turn)
    for (std::size_t k = 0; k < std::size(counts); ++k)
      if (turn < counts[k])
        ids.push_back(static_cast<std::int32_t>(k));
  const auto n = ids.size();
  const device_array<std::int32_t> device_ids(ids);
  for (const std::size_t columns : {0, 1, 31, 32, 33, 64, 97}) {
    const auto dy = random_floats(n * columns, "dy");
    std::vector<float> sums(entries * columns);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t c = 0; c < columns; ++c)
        sums[static_cast<std::size_t>(ids[i]) * columns + c] += dy[i * columns + c];
    const device_array<float> device_dy(dy);
    in_all_orders([&] {
      const device_array<std::uint64_t> space(cuda::embedding_gradient_space(n));
      const device_array<float> out(sums.size());
      cuda::embedding_gradient({}, n, entries, columns, device_ids.data(), device_dy.data(),
                               space.data(), out.data());
      BOOST_TEST(same_bits(out.values(), sums));
    });
  }
}

BOOST_AUTO_TEST_CASE(rows_over_their_operands) {
  const auto x = random_floats(9 * 70, "x");
  const auto dy = random_floats(9 * 70, "dy");
  const device_array<float> a(x);
  const device_array<float> b(dy);
  const device_array<float> apart(x.size());
  in_all_orders([&] {
    cuda::normalize_rows_gradient({}, 9, 70, b.data(), a.data(), 1e-5, apart.data());
    const device_array<float> over(dy);
    cuda::normalize_rows_gradient({}, 9, 70, over.data(), a.data(), 1e-5, over.data());
    BOOST_TEST(same_bits(over.values(), apart.values()));
    cuda::normalize_rows({}, 9, 70, a.data(), 1e-5, apart.data());
    const device_array<float> over_x(x);
    cuda::normalize_rows({}, 9, 70, over_x.data(), 1e-5, over_x.data());
    BOOST_TEST(same_bits(over_x.values(), apart.values()));
  });
}

BOOST_AUTO_TEST_SUITE_END()
