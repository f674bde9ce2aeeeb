#include "kernels/cuda/sparse.hpp"

#include "kernels/cpu/sparse.hpp"
#include "kernels/cuda/executor.hpp"
#include "kernels/cuda/sparse_feed.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sparse_operations.hpp"
#include "tests/kernels/cuda/device_checks.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/simulator.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A matrix whose row r has `each(r)` entries in any columns. Some columns occur twice in a row.
struct sparse_matrix {
  template <class Each>
  sparse_matrix(std::size_t n, std::size_t features, Each each) : rows(n) {
    std::uint64_t state = 7 * n + features;
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t k = each(r); k > 0; --k) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        columns.push_back(static_cast<std::int32_t>((state >> 33) % features));
      }
      starts.push_back(static_cast<std::int32_t>(columns.size()));
    }
    values = random_floats(columns.size(), "values");
  }

  sparse_rows<float> feed() const { return {starts.data(), columns.data(), values.data()}; }

  std::size_t rows;
  std::vector<std::int32_t> starts{0};
  std::vector<std::int32_t> columns;
  std::vector<float> values;
};

struct size {
  std::size_t rows, features, units, each;
};

/// Compares both sparse products with those of the CPU. All bits must be equal, also those of NaNs.
void check_products(const sparse_matrix& x, std::size_t features, std::size_t units) {
  const auto weight = random_floats(features * units, "weight");
  const auto g = random_floats(x.rows * units, "g");
  std::vector<float> product(x.rows * units);
  std::vector<float> gradient(features * units);
  const weight_rows<float> whole{0, {0, features}, weight.data()};
  cpu::sparse_matmul<float>(x.rows, features, units, x.feed(), {&whole, 1}, product.data());
  cpu::sparse_matmul_gradient<float>(x.rows, features, units, x.feed(), g.data(), gradient.data());
  simulated_device gpu;
  cuda::sparse_feed there(gpu, x.rows, features, true);
  there.copy({}, x.feed(), x.rows);
  const device_array<float> w(weight);
  const device_array<float> dy(g);
  in_all_orders([&] {
    const device_array<float> out(product.size());
    cuda::sparse_matmul({}, x.rows, features, units, there.entries(), w.data(), out.data());
    BOOST_TEST(same_bits(out.values(), product)); // the GPU adds up in the same order
    const device_array<float> sums(gradient.size());
    cuda::sparse_matmul_gradient({}, x.rows, features, units, there.columns(), dy.data(),
                                 sums.data());
    BOOST_TEST(same_bits(sums.values(), gradient));
  });
}

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_sparse)

BOOST_AUTO_TEST_CASE(products) {
  std::vector<size> sizes{{1, 1, 1, 1},     {33, 40, 7, 0},  {33, 40, 7, 5},
                          {7, 997, 33, 31}, {257, 60, 1, 9}, {60, 3, 257, 4}};
  for (const auto n : element_counts) {
    sizes.push_back({n, 7, 3, 2});
    if (n > 0) {
      sizes.push_back({5, n, 3, 4});
      sizes.push_back({5, 7, n, 2});
    }
    if (n < 1000)
      sizes.push_back({2, 7, 3, n});
  }
  for (const auto& [rows, features, units, each] : sizes)
    BOOST_TEST_CONTEXT(rows << " rows, " << features << " features, " << units << " units") {
      check_products(
        {rows, features, [each = each](std::size_t r) { return (r * 5 + 3) % (each + 1); }},
        features, units);
    }
}

// A thread loads several entries of a column before it adds them.
BOOST_AUTO_TEST_CASE(columns_with_many_entries) {
  for (const std::size_t n : {7, 8, 9, 16, 17, 300})
    check_products({n, 1, [](std::size_t) { return 1; }}, 1, 3);
}

// The entries of a column keep their order. The numbers of features need zero to three passes of
// the sort. A smaller batch follows a larger one in the same memory.
BOOST_AUTO_TEST_CASE(entries_are_sorted_by_column) {
  for (const std::size_t features : {1UL, 3UL, 2048UL, 2049UL, 1UL << 22, (1UL << 31) - 1}) {
    simulated_device gpu;
    cuda::sparse_feed there(gpu, 50, features, true);
    const auto where = gpu.main_stream();
    for (const std::size_t rows : {50, 7, 0, 49}) {
      sparse_matrix x(rows, features, [](std::size_t r) { return r * 7 % 40; });
      for (std::size_t i = 0; i < x.columns.size(); i += 5) // a frequent column
        x.columns[i] = static_cast<std::int32_t>(features - 1);
      if (rows == 49) {
        x.columns[2] = -1;
        x.columns[3] = std::numeric_limits<std::int32_t>::max(); // no feature
      }
      there.copy(where, x.feed(), rows);
      struct entry {
        std::int32_t column, row;
        float value;
      };
      std::vector<entry> expected;
      for (std::size_t r = 0; r < rows; ++r)
        for (auto e = static_cast<std::size_t>(x.starts[r]);
             e < static_cast<std::size_t>(x.starts[r + 1]); ++e)
          if (x.columns[e] >= 0 && static_cast<std::size_t>(x.columns[e]) < features)
            expected.push_back({x.columns[e], static_cast<std::int32_t>(r), x.values[e]});
      std::ranges::stable_sort(expected, {}, &entry::column);
      const auto fetch = [&]<class T>(const T* from, std::size_t n) {
        std::vector<T> result(n);
        if (n > 0)
          gpu.copy_out(where, result.data(), from, n * sizeof(T));
        gpu.synchronize(where);
        return result;
      };
      const auto found = there.columns();
      const auto groups = static_cast<std::size_t>(fetch(found.count, 1)[0]);
      const auto columns = fetch(found.columns, groups);
      const auto starts = fetch(found.starts, groups + 1);
      const auto row_of = fetch(found.rows, expected.size());
      BOOST_TEST(same_bits(fetch(found.values, expected.size()), [&] {
        std::vector<float> result;
        for (const auto& y : expected)
          result.push_back(y.value);
        return result;
      }()));
      BOOST_TEST(starts.front() == 0);
      BOOST_TEST(starts.back() == static_cast<std::int32_t>(expected.size()));
      for (std::size_t k = 0; k < groups; ++k) {
        BOOST_TEST((k == 0 || columns[k - 1] < columns[k]));
        BOOST_TEST(starts[k] < starts[k + 1]);
        for (auto i = static_cast<std::size_t>(starts[k]);
             i < static_cast<std::size_t>(starts[k + 1]); ++i) {
          BOOST_TEST(expected[i].column == columns[k]);
          BOOST_TEST(expected[i].row == row_of[i]);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(columns_that_are_no_features) {
  sparse_matrix x(9, 20, [](std::size_t r) { return r % 4; });
  x.columns[0] = -1;
  x.columns[5] = 20;
  const auto weight = random_floats(20 * 3, "weight");
  simulated_device gpu;
  cuda::sparse_feed there(gpu, x.rows, 20, true);
  there.copy({}, x.feed(), x.rows);
  const device_array<float> w(weight);
  const device_array<float> out(x.rows * 3);
  cuda::sparse_matmul({}, x.rows, 20, 3, there.entries(), w.data(), out.data());
  std::vector<float> product(x.rows * 3);
  const weight_rows<float> whole{0, {0, 20}, weight.data()};
  cpu::sparse_matmul<float>(x.rows, 20, 3, x.feed(), {&whole, 1}, product.data());
  std::size_t nans = 0;
  for (std::size_t i = 0; i < product.size(); ++i) {
    BOOST_TEST(std::isnan(out.values()[i]) == std::isnan(product[i]));
    nans += std::isnan(product[i]) ? 1 : 0;
  }
  BOOST_TEST(nans == 2 * 3U);
  const auto g = random_floats(x.rows * 3, "g");
  const device_array<float> dy(g);
  const device_array<float> sums(20 * 3);
  cuda::sparse_matmul_gradient({}, x.rows, 20, 3, there.columns(), dy.data(), sums.data());
  std::vector<float> gradient(20 * 3);
  cpu::sparse_matmul_gradient<float>(x.rows, 20, 3, x.feed(), g.data(), gradient.data());
  BOOST_TEST(same_bits(sums.values(), gradient));
}

// The memory for entries grows only a few times, so the addresses in recordings seldom change.
BOOST_AUTO_TEST_CASE(memory_of_entries_settles) {
  const auto growths = [](std::size_t batches, auto entries_of) {
    simulated_device gpu;
    cuda::sparse_feed there(gpu, 1, 10, true);
    std::size_t result = 0;
    for (std::size_t i = 0; i < batches; ++i) {
      const sparse_matrix x(1, 10, [&](std::size_t) { return entries_of(i); });
      result += there.copy({}, x.feed(), 1) ? 1 : 0;
    }
    return result;
  };
  // Batches with 50 to 150 entries, in any order.
  BOOST_TEST(growths(300, [](std::size_t i) { return 50 + (i * 37 + 11) % 101; }) <= 2U);
  // Each batch has more entries than the one before: from 1 to 3000.
  BOOST_TEST(growths(300, [](std::size_t i) { return 1 + 10 * i; }) <= 12U);
}

// The first batch determines how much memory an executor has for entries.
BOOST_AUTO_TEST_CASE(memory_of_entries_is_known) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 50}, dtype::sparse);
  const auto y = sparse_dense_layer(x, "dense", 4);
  for (const bool gradients : {false, true}) {
    plan_options options = cuda::gpu_plan_options();
    options.max_rows = 33;
    options.loss = sum(multiply(y, y));
    options.gradients = gradients;
    const auto what = std::make_shared<const plan>(g, options);
    simulated_device gpu;
    cuda::executor there(gpu, what);
    const auto w = random_floats(50 * 4, "w");
    const auto b = random_floats(4, "b");
    const std::vector<const float*> pointers{w.data(), b.data()};
    const sparse_matrix features(33, 50, [](std::size_t) { return 3; });
    const std::vector<feed<float>> feeds{features.feed()};
    run_arguments<float> arguments;
    arguments.rows = 33;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    there.run(arguments);
    BOOST_TEST(gpu.allocated_bytes() == cuda::executor::memory_bytes(*what, 33 * 3));
    BOOST_TEST(gpu.pinned_bytes() == cuda::executor::pinned_bytes(*what, 33 * 3));
    BOOST_TEST(gpu.pinned_bytes() > cuda::executor::pinned_bytes(*what));
  }
}

// Batches have growing and shrinking numbers of entries. Some of the runs are recorded.
BOOST_AUTO_TEST_CASE(a_sparse_model) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 50}, dtype::sparse);
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto logits = sparse_dense_layer(x, "dense", 4);
  const auto plan_for = [&](plan_options options) {
    options.max_rows = 33;
    options.loss = softmax_cross_entropy(logits, labels);
    options.gradients = true;
    return std::make_shared<const plan>(g, options);
  };
  const auto what = plan_for(cuda::gpu_plan_options());
  with_all_devices([&](simulated_device& gpu) {
    cuda::executor there(gpu, what);
    BOOST_TEST(gpu.allocated_bytes() == cuda::executor::memory_bytes(*what));
    BOOST_TEST(gpu.pinned_bytes() == cuda::executor::pinned_bytes(*what));
    executor<float> here(plan_for(cpu_plan_options()));
    const auto w = random_floats(50 * 4, "w");
    const auto b = random_floats(4, "b");
    const std::vector<const float*> pointers{w.data(), b.data()};
    for (const std::size_t each : {2, 9, 0, 30, 3})
      for (const std::size_t rows : {33, 7, 0}) {
        const sparse_matrix features(rows, 50,
                                     [&](std::size_t r) { return (r + each) % (each + 1); });
        std::vector<std::int32_t> classes(rows);
        for (std::size_t i = 0; i < rows; ++i)
          classes[i] = static_cast<std::int32_t>(i % 4);
        const std::vector<feed<float>> feeds{features.feed(), classes.data()};
        std::vector<float> expected(g.parameters().size());
        std::vector<float> gradient(expected.size());
        run_arguments<float> arguments;
        arguments.rows = rows;
        arguments.weights = pointers;
        arguments.feeds = feeds;
        arguments.gradient = expected;
        const auto on_cpu = here.run(arguments);
        arguments.gradient = gradient;
        const auto on_instruction = [](std::size_t) {};
        arguments.on_instruction = on_instruction; // with a callback, nothing is recorded
        const auto by_step = there.run(arguments);
        check_close(std::vector{by_step.loss}, std::vector{on_cpu.loss}, 2e-6, 2e-6, "loss");
        check_close(gradient, as_doubles(expected), 2e-6, 2e-5, "gradient");
        arguments.gradient = {};
        arguments.on_instruction = {};
        BOOST_TEST(there.run(arguments).loss == by_step.loss);
        std::vector<float> recorded(gradient.size());
        gpu.copy_out(there.where(), recorded.data(), there.gradient().data(),
                     there.gradient().size_bytes());
        BOOST_TEST(same_bits(recorded, gradient));
      }
  });
}

BOOST_AUTO_TEST_SUITE_END()
