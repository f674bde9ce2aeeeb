#include "kernels/cuda/tensor_core.hpp"

#include "kernels/narrow_float.hpp"
#include "tests/kernels/cuda/faults.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace troupe;
using namespace troupe::cuda;
using namespace troupe::test;

namespace {

constexpr std::size_t tile_size = std::size_t{tensor_edge} * tensor_edge;
constexpr unsigned stride = tensor_edge + tensor_row;

template <class T>
std::vector<T> rounded_all(const std::vector<float>& x) {
  std::vector<T> result(x.size());
  std::ranges::transform(x, result.begin(), rounded_to<T>);
  return result;
}

/// Each warp multiplies its tiles: c += a b. Then it computes d = c b with rounded c.
template <class T>
struct product_kernel {
  view<const T> a, b;     // (warps, 16, 16)
  view<float> c, d;       // (warps, 16, 16)
  bool columns_in_memory; // b has its columns in shared memory

  TROUPE_DEVICE void operator()(const thread& t) const {
    const auto memory = t.shared<T>(2 * block_warps * tensor_edge * stride);
    const auto begin = t.warp() * tensor_edge * stride;
    const tile_memory<T> left{memory, begin, stride};
    const tile_memory<T> right{memory, block_warps * tensor_edge * stride + begin, stride};
    const auto first = t.warp() * tile_size;
    for (auto i = t.lane(); i < tile_size; i += warp_threads) {
      const auto row = i / tensor_edge;
      const auto column = i % tensor_edge;
      left.store(row, column, a.load(first + i));
      right.store(columns_in_memory ? column : row, columns_in_memory ? row : column,
                  b.load(first + i));
    }
    t.barrier();
    const auto y = columns_in_memory ? load_right_transposed(t, right) : load_right(t, right);
    const auto place = [&](unsigned i) {
      return first + sum_tile::row(t.lane(), i) * tensor_edge + sum_tile::column(t.lane(), i);
    };
    sum_tile sum{};
    for (unsigned i = 0; i < sum_tile::size; ++i)
      sum.x[i] = c.load(place(i));
    add_product(t, load_left(t, left), y, sum);
    sum_tile next{};
    add_product(t, rounded_left<T>(sum), y, next);
    for (unsigned i = 0; i < sum_tile::size; ++i) {
      c.store(place(i), sum.x[i]);
      d.store(place(i), next.x[i]);
    }
  }
};

constexpr std::size_t shared_bytes = std::size_t{2} * block_warps * tensor_edge * stride * 2;

/// The expected value of c + a b for the tiles of all warps.
template <class T>
std::vector<double> expected_sums(const std::vector<T>& a, const std::vector<T>& b,
                                  std::vector<double> c) {
  for (std::size_t i = 0; i < c.size(); ++i)
    for (std::size_t k = 0; k < tensor_edge; ++k) {
      const auto tile = i / tile_size * tile_size;
      c[i] += double{widened(a[i / tensor_edge * tensor_edge + k])}
        * double{widened(b[tile + k * tensor_edge + i % tensor_edge])};
    }
  return c;
}

template <class T>
void check_products() {
  const auto n = block_warps * tile_size;
  const auto a = rounded_all<T>(random_floats(n, "a"));
  const auto b = rounded_all<T>(random_floats(n, "b"));
  const auto c = random_floats(n, "c");
  const auto sums = expected_sums(a, b, as_doubles(c));
  const device_array<T> device_a(a);
  const device_array<T> device_b(b);
  in_all_orders([&] {
    for (const bool columns_in_memory : {false, true}) {
      const device_array<float> device_c(c);
      const device_array<float> device_d(n);
      launch({}, "products", {1, shared_bytes},
             product_kernel<T>{{device_a.data(), n},
                               {device_b.data(), n},
                               {device_c.data(), n},
                               {device_d.data(), n},
                               columns_in_memory});
      const auto found = device_c.values();
      check_close(found, sums, 1e-6, 1e-5, "sums");
      check_close(device_d.values(),
                  expected_sums(rounded_all<T>(found), b, std::vector<double>(n)), 1e-6, 1e-5,
                  "products of the rounded sums");
    }
  });
}

/// A tile of ones that the first warp may load.
tile_memory<bfloat16> ones(const thread& t, unsigned begin = 0, unsigned row = stride) {
  const auto memory = t.shared<bfloat16>(2 * tensor_edge * stride);
  for (auto i = t.index(); i < memory.size; i += block_threads)
    memory.store(i, rounded_to<bfloat16>(1));
  t.barrier();
  return {memory, begin, row};
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_tensor_cores)

BOOST_AUTO_TEST_CASE(products_of_both_types) {
  check_products<bfloat16>();
  check_products<float16>();
}

// If a lane does not take part, a GPU stops or the result is undefined.
BOOST_AUTO_TEST_CASE(products_need_all_lanes) {
  // `act` gets a thread, and a function that multiplies.
  const auto fault = [](auto act) {
    return fault_of(
      [act](const thread& t) {
        const auto tile = ones(t);
        const auto a = load_left(t, tile);
        const auto b = load_right(t, tile);
        sum_tile sum{};
        act(t, [&] { add_product(t, a, b, sum); });
      },
      1, shared_bytes);
  };
  contains(fault([](const thread& t, auto multiply) {
             if (t.index() != 37)
               multiply();
           }),
           "thread 37: does not reach a product at line");
  contains(fault([](const thread& t, auto multiply) {
             if (t.lane() == 0)
               t.shuffle_xor(1, 1);
             else
               multiply();
           }),
           "waits in a product at line");
  const auto whole_warps = [](const thread& t, auto multiply) {
    if (t.warp() != 1)
      multiply();
  };
  BOOST_TEST(fault(whole_warps) == "(no error)");
}

BOOST_AUTO_TEST_CASE(rows_of_tiles_are_aligned) {
  const auto* const text = "elements of 16 bytes at an address that is not a multiple of this";
  contains(fault_of([](const thread& t) { load_left(t, ones(t, 4)); }, 1, shared_bytes), text);
  contains(
    fault_of([](const thread& t) { load_right(t, ones(t, 0, stride + 1)); }, 1, shared_bytes),
    text);
}

// An element that is being copied is a NaN until the thread has waited.
BOOST_AUTO_TEST_CASE(copies_end_at_the_wait) {
  const auto values = random_floats(block_threads, "values");
  const device_array<float> from(values);
  in_all_orders([&] {
    const device_array<float> before(values.size());
    const device_array<float> after(values.size());
    const auto views = [](const device_array<float>& x) { return view<float>{x.data(), x.size()}; };
    const auto kernel = [a = view<const float>{from.data(), from.size()}, b = views(before),
                         c = views(after)](const thread& t) {
      const auto memory = t.shared<float>(block_threads);
      start_copy(memory, t.index(), a, t.index(), t.index() % 3 != 0);
      b.store(t.index(), memory.load(t.index()));
      wait_for_copies();
      t.barrier();
      c.store(t.index(), memory.load((t.index() + 1) % block_threads));
    };
    launch({}, "copies", {1, block_threads * sizeof(float)}, kernel);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto next = (i + 1) % values.size();
      BOOST_TEST(std::isnan(before.values()[i]));
      BOOST_TEST(after.values()[i] == (next % 3 != 0 ? values[next] : 0.0F));
    }
  });
}

BOOST_AUTO_TEST_CASE(copies_need_a_wait_and_a_barrier) {
  const device_array<float> from(random_floats(block_threads, "values"));
  const view<const float> values{from.data(), from.size()};
  // `act` gets a thread, and shared memory to which each thread copies an element.
  const auto fault = [&](auto act) {
    return fault_of(
      [act, values](const thread& t) {
        const auto memory = t.shared<float>(2 * block_threads);
        start_copy(memory, t.index(), values, t.index(), true);
        act(t, memory);
      },
      2, 2 * block_threads * sizeof(float));
  };
  const auto next = [](const thread& t) { return (t.index() + 1) % block_threads; };
  contains(fault([](const thread& t, auto) {
             if (t.block() == 0 || t.index() != 37)
               wait_for_copies();
           }),
           "kernel faulty, block 1, thread 37: ends without waiting for its copies");
  contains(fault([next](const thread& t, auto memory) {
             wait_for_copies();
             memory.load(next(t));
           }),
           "a read of memory that nothing has written");
  // Other threads may already read the element when the wait writes it.
  contains(fault([next](const thread& t, auto memory) {
             t.barrier();
             wait_for_copies();
             memory.load(next(t));
           }),
           "a race");
  // A copy may write its destination as soon as it starts.
  contains(fault([next, values](const thread& t, auto memory) {
             wait_for_copies();
             t.barrier();
             memory.load(next(t));
             start_copy(memory, t.index(), values, t.index(), true);
             t.barrier();
             wait_for_copies();
           }),
           "a race");
  contains(fault([values](const thread& t, auto memory) {
             start_copy(memory, 2 * block_threads, values, t.index(), true);
           }),
           "a write of element 512 of a view of 512");
  // The errors leave nothing behind.
  BOOST_TEST(fault([](const thread&, auto) { wait_for_copies(); }) == "(no error)");
}

BOOST_AUTO_TEST_SUITE_END()
