// Runs that copy only the rows of tables that a batch selects (run_arguments::table_rows).

#include "kernels/cuda/table_rows.hpp"

#include "kernels/cuda/executor.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/graph/sparse_operations.hpp"
#include "tests/kernels/cuda/counting_device.hpp"
#include "tests/kernels/cuda/forgetful_device.hpp"
#include "tests/kernels/cuda/simulated_device.hpp"
#include "tests/kernels/cuda/sizes.hpp"
#include "tests/kernels/cuda/stream_orders.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t max_rows = 9;
constexpr std::size_t one_bucket = std::size_t{1} << 30;

/// Sparse features select rows of `features`, and ids select rows of `words`. Both tables have
/// `height` rows.
std::shared_ptr<const plan> two_tables(std::size_t height, std::size_t bucket_bytes,
                                       bool neighbours = false) {
  const auto n = static_cast<std::int64_t>(height);
  graph g;
  const auto x = g.placeholder("x", {shape::batch, n}, dtype::sparse);
  const auto ids = g.placeholder("ids", {shape::batch}, dtype::int32);
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto first = g.variable("first", {4});
  const auto features = g.variable("features", {n, 4});
  expression words;
  if (neighbours)
    words = g.variable("words", {n, 3});
  const auto middle = g.variable("middle", {3, 4});
  if (!neighbours)
    words = g.variable("words", {n, 3});
  const auto last = g.variable("last", {5, 3});
  const auto hidden = relu(add_bias(sparse_matmul(x, features), first));
  const auto logits = dense(dense(hidden, middle) + embedding(words, ids), last);
  auto options = cuda::gpu_plan_options();
  options.max_rows = max_rows;
  options.loss = softmax_cross_entropy(logits, labels);
  options.gradients = true;
  options.bucket_bytes = bucket_bytes;
  auto result = std::make_shared<const plan>(g, options);
  BOOST_TEST_REQUIRE(result->row_sparse_gradients().size() == 2U);
  return result;
}

/// A batch whose samples select the given rows in turn: each sample has a feature and an id.
struct batch {
  batch(std::size_t samples, const std::vector<std::int32_t>& named) : rows(samples) {
    for (std::size_t i = 0; i < samples; ++i) {
      columns.push_back(named[i % named.size()]);
      ids.push_back(named[(i + 1) % named.size()]);
      labels.push_back(static_cast<std::int32_t>(i % 5));
      starts.push_back(static_cast<std::int32_t>(i + 1));
    }
    values = random_floats(samples, "values");
  }

  std::vector<feed<float>> feeds() const {
    return {sparse_rows<float>{starts.data(), columns.data(), values.data()}, ids.data(),
            labels.data()};
  }

  std::size_t rows;
  std::vector<std::int32_t> starts{0};
  std::vector<std::int32_t> columns;
  std::vector<float> values;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

/// These rows of all tables. Neighbouring rows become one range if `joined` is true.
range_list rows_of(const plan& what, std::vector<std::int32_t> named, bool joined) {
  std::ranges::sort(named);
  named.erase(std::unique(named.begin(), named.end()), named.end());
  range_list result;
  for (const auto& table : what.row_sparse_gradients()) {
    const auto& tensor = what.parameters().entries()[table.parameter];
    const auto width = tensor.size / static_cast<std::size_t>(tensor.shape[0]);
    for (const auto row : named) {
      const auto begin = tensor.offset + static_cast<std::size_t>(row) * width;
      if (joined && !result.empty() && result.back().end == begin)
        result.back().end += width;
      else
        result.push_back({begin, begin + width});
    }
  }
  return result;
}

struct outcome {
  double loss = 0;
  std::vector<float> gradient;
  bool operator==(const outcome& x) const {
    return loss == x.loss && same_bits(gradient, x.gradient);
  }
};

/// A step: a batch, and the rows that the arguments name. The batch may use only some of them.
struct step {
  std::size_t samples = 0;
  std::vector<std::int32_t> used;
  std::vector<std::int32_t> named;
  bool by_rows = true;
};

/// Runs a step with new weights. If it copies only rows, the weights of all other rows of tables
/// are NaN. A run that used them would have another result.
outcome run(cuda::executor& there, const step& x, std::size_t number, bool by_rows,
            bool joined = true) {
  const auto& what = there.what();
  const auto& entries = what.parameters().entries();
  const batch samples(x.samples, x.used);
  const auto feeds = samples.feeds();
  const auto rows = rows_of(what, x.named, joined);
  auto weights = random_floats(what.parameters().size(), "weights " + std::to_string(number));
  if (by_rows)
    for (const auto& table : what.row_sparse_gradients())
      for (auto i = entries[table.parameter].offset; i < entries[table.parameter].elements().end;
           ++i)
        if (std::ranges::none_of(rows, [&](range part) { return part.contains(i); }))
          weights[i] = std::numeric_limits<float>::quiet_NaN();
  std::vector<const float*> pointers;
  for (const auto& tensor : entries)
    pointers.push_back(weights.data() + tensor.offset);
  outcome result;
  result.gradient.assign(weights.size(), by_rows ? 0.0F : 77.0F);
  // A bucket is final when it is passed on.
  std::vector<float> passed(weights.size());
  const auto on_bucket = [&](std::size_t bucket) {
    const auto part = what.buckets()[bucket].elements;
    for (auto i = part.begin; i < part.end; ++i)
      passed[i] = result.gradient[i];
  };
  run_arguments<float> arguments;
  arguments.rows = x.samples;
  arguments.weights = pointers;
  arguments.feeds = feeds;
  arguments.gradient = result.gradient;
  arguments.on_bucket = on_bucket;
  if (by_rows) {
    arguments.tables_cleared = true;
    arguments.table_rows = &rows;
  }
  result.loss = there.run(arguments).loss;
  BOOST_TEST(same_bits(passed, result.gradient));
  return result;
}

const std::vector<std::int32_t> borders{0, 99, 1, 50};

/// Steps with tables of 100 rows. Some sizes of batches occur several times, so they are recorded.
const std::vector<step> batches_of_rows{{9, {3, 4, 5, 77}, {3, 4, 5, 77}},
                                        {9, borders, borders},
                                        {9, {8}, {8}},
                                        {9, borders, {}, false}, // all weights are copied again
                                        {9, {20, 21}, {5, 20, 21, 40}},
                                        {0, {1}, {0, 7, 99}},
                                        {0, {1}, {}},
                                        {9, {98, 99}, {98, 99, 0}},
                                        {7, {6, 66}, {6, 66}},
                                        {9, {3}, {}, false},
                                        {9, {3}, {}, false},
                                        {9, {10, 12, 14, 16, 18}, {10, 12, 14, 16, 18, 20}},
                                        {9, {0}, {0}},
                                        {0, {1}, {}, false}};

} // namespace

BOOST_AUTO_TEST_SUITE(cuda_table_rows)

BOOST_AUTO_TEST_CASE(results_are_those_of_whole_copies) {
  for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{64}, one_bucket})
    for (const bool neighbours : {false, true})
      for (const bool joined : {false, true})
        with_all_devices([&](simulated_device& gpu) {
          const auto what = two_tables(100, bucket_bytes, neighbours);
          BOOST_TEST((what->buckets().size() == 1) == (bucket_bytes == one_bucket));
          cuda::executor whole(gpu, what);
          cuda::executor some(gpu, what);
          for (std::size_t i = 0; i < batches_of_rows.size(); ++i) {
            const auto expected = run(whole, batches_of_rows[i], i, false);
            BOOST_TEST(
              (run(some, batches_of_rows[i], i, batches_of_rows[i].by_rows, joined) == expected),
              "step " << i);
          }
          BOOST_TEST(gpu.recordings() > 0U);
        });
}

// The weights of a run are on the device afterwards: those of the selected rows, and all others
// outside of tables.
BOOST_AUTO_TEST_CASE(later_runs_use_the_same_rows) {
  with_all_devices([&](simulated_device& gpu) {
    const auto what = two_tables(100, 1);
    cuda::executor there(gpu, what);
    const step x{9, {3, 4, 50}, {3, 4, 50, 60}};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto expected = run(there, x, i, true);
      const batch samples(x.samples, x.used);
      const auto feeds = samples.feeds();
      std::vector<float> gradient(expected.gradient.size(), 77);
      run_arguments<float> arguments;
      arguments.rows = x.samples;
      arguments.feeds = feeds;
      arguments.gradient = gradient;
      BOOST_TEST(there.run(arguments).loss == expected.loss);
      BOOST_TEST(same_bits(gradient, expected.gradient));
    }
  });
}

// On the device, other rows of tables are neither read nor written.
BOOST_AUTO_TEST_CASE(other_rows_on_the_device_do_not_change) {
  simulated_device gpu;
  const auto what = two_tables(100, 1);
  cuda::executor there(gpu, what);
  const auto n = what->parameters().size();
  const std::vector<float> before(n, 5);
  for (const auto& to : {there.weights(), there.gradient()})
    gpu.copy_in(there.where(), to.data(), before.data(), to.size_bytes());
  gpu.synchronize(there.where());
  const step x{9, {3, 4, 50}, {3, 4, 50, 60}};
  for (std::size_t i = 0; i < 3; ++i) // the last of these runs uses recordings
    run(there, x, i, true);
  const auto rows = rows_of(*what, x.named, true);
  for (const auto& from : {there.weights(), there.gradient()}) {
    std::vector<float> after(n);
    gpu.copy_out(there.where(), after.data(), from.data(), from.size_bytes());
    gpu.synchronize(there.where());
    for (const auto& table : what->row_sparse_gradients()) {
      const auto tensor = what->parameters().entries()[table.parameter].elements();
      for (auto i = tensor.begin; i < tensor.end; ++i)
        BOOST_TEST((after[i] == 5)
                   == std::ranges::none_of(rows, [&](range part) { return part.contains(i); }));
    }
  }
}

// A table may be in several pieces of memory, for runs of both kinds.
BOOST_AUTO_TEST_CASE(tables_in_pieces) {
  const auto what = two_tables(100, 1);
  const auto& entries = what->parameters().entries();
  const auto weights = random_floats(what->parameters().size(), "weights");
  const step x{9, borders, borders};
  const auto rows = rows_of(*what, {0, 1, 29, 30, 31, 50, 99}, true);
  const batch samples(x.samples, x.used);
  const auto feeds = samples.feeds();
  std::vector<const float*> pointers;
  std::vector<std::vector<float>> pieces;
  std::vector<weight_rows<float>> parts;
  const std::vector<float> other(400, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto from = weights.begin() + static_cast<std::ptrdiff_t>(entries[i].offset);
    if (entries[i].shape[0] != 100) {
      pointers.push_back(&*from);
      continue;
    }
    BOOST_TEST(may_be_cut(*what, i));
    pointers.push_back(other.data());
    const auto width = static_cast<std::ptrdiff_t>(entries[i].size / 100);
    for (const range part : {range{0, 30}, {30, 32}, {32, 100}}) {
      pieces.emplace_back(from + static_cast<std::ptrdiff_t>(part.begin) * width,
                          from + static_cast<std::ptrdiff_t>(part.end) * width);
      parts.push_back({i, part, pieces.back().data()});
    }
  }
  std::vector<const float*> whole;
  for (const auto& tensor : entries)
    whole.push_back(weights.data() + tensor.offset);
  simulated_device gpu;
  std::vector<std::vector<float>> gradients;
  for (const bool cut : {false, true})
    for (const bool by_rows : {false, true}) {
      cuda::executor there(gpu, what);
      gradients.emplace_back(weights.size());
      run_arguments<float> arguments;
      arguments.rows = x.samples;
      arguments.weights = cut ? pointers : whole;
      if (cut)
        arguments.parts = parts;
      arguments.feeds = feeds;
      arguments.gradient = gradients.back();
      arguments.tables_cleared = by_rows;
      arguments.table_rows = by_rows ? &rows : nullptr;
      there.run(arguments);
      BOOST_TEST(same_bits(gradients.back(), gradients.front()));
    }
}

namespace {

/// The copies of a step.
traffic copies_of(std::size_t height, const step& x) {
  const auto all = std::make_shared<traffic>();
  counting_device gpu(std::nullopt, all);
  cuda::executor there(gpu, two_tables(height, 1));
  run(there, x, 0, x.by_rows);
  const auto before = *all;
  run(there, x, 1, x.by_rows);
  return {all->in - before.in, all->out - before.out};
}

} // namespace

BOOST_AUTO_TEST_CASE(copies_do_not_depend_on_the_size_of_a_table) {
  const step some{9, {3, 50, 7}, {3, 50, 7}};
  const auto small = copies_of(100, some);
  const auto large = copies_of(10'000, some);
  BOOST_TEST(small.in == large.in);
  BOOST_TEST(small.out == large.out);
  auto all = some;
  all.by_rows = false;
  const std::size_t whole = 7 * 100 * sizeof(float);
  const std::size_t rows = 3 * 7 * sizeof(float);
  const std::size_t positions = 3 * 2 * 2 * sizeof(std::uint32_t);
  const auto everything = copies_of(100, all);
  BOOST_TEST(everything.in - small.in == whole - rows - positions);
  BOOST_TEST(everything.out - small.out == whole - rows);
}

// If a batch selects many rows, whole tables are copied.
BOOST_AUTO_TEST_CASE(many_rows) {
  step x{9, {}, {}};
  for (std::int32_t row = 0; row < 100; ++row) {
    x.named.push_back(row);
    x.used = x.named;
    simulated_device gpu;
    const auto what = two_tables(100, 1);
    const cuda::table_rows rows(gpu, *what);
    // A row that is a range of its own needs two positions in each of the tables.
    const auto apart = static_cast<std::size_t>(row + 1) * (7 + 2 * 2);
    BOOST_TEST(rows.is_worth_packing(rows_of(*what, x.named, false)) == (2 * apart <= 700));
    const auto joined = static_cast<std::size_t>(row + 1) * 7 + 2 * 2;
    BOOST_TEST(rows.is_worth_packing(rows_of(*what, x.named, true)) == (2 * joined <= 700));
  }
  auto whole = x;
  whole.by_rows = false;
  BOOST_TEST(copies_of(100, x).in == copies_of(100, whole).in);
  BOOST_TEST(copies_of(100, x).out == copies_of(100, whole).out);
}

// For each segment of a step, the copy stream waits once, and the host waits once.
BOOST_AUTO_TEST_CASE(a_step_needs_every_wait_for_an_event) {
  const auto what = two_tables(100, 1, true);
  std::vector<std::size_t> ends;
  for (const auto& x : what->buckets())
    ends.push_back(x.ready_after);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  check_all_are_needed(
    3 * 2 * ends.size(),
    [&](auto make) {
      const auto gpu = make();
      cuda::executor there(*gpu, what);
      std::vector<outcome> result;
      for (const std::size_t i : {0, 1, 4})
        result.push_back(run(there, batches_of_rows[i], i, true));
      return result;
    },
    [](const auto& a, const auto& b) { return a == b; });
}

// The first batch determines how much memory is allocated for rows, and a larger one lets it grow.
BOOST_AUTO_TEST_CASE(memory_of_rows) {
  simulated_device gpu;
  const auto what = two_tables(1000, 1);
  cuda::executor there(gpu, what);
  const auto device = gpu.allocated_bytes();
  const auto pinned = gpu.pinned_bytes();
  const step all{9, {1, 3, 5, 7, 9, 11, 13, 15, 17}, {1, 3, 5, 7, 9, 11, 13, 15, 17}};
  auto whole = all;
  whole.by_rows = false;
  run(there, whole, 0, false);
  const auto entries = gpu.allocated_bytes() - device;
  run(there, all, 0, true);
  const auto rows = cuda::table_rows::memory_bytes(*what, 9);
  BOOST_TEST(rows == (63 + 31) * sizeof(float) + (36 + 18) * sizeof(std::uint32_t));
  BOOST_TEST(gpu.allocated_bytes() - device - entries == rows);
  BOOST_TEST(gpu.pinned_bytes() - pinned - entries == rows);
  const auto allocations = gpu.allocations();
  run(there, {9, {2}, {2, 4, 6, 8, 10, 12, 14, 16, 18, 20}}, 1, true); // fits
  BOOST_TEST(gpu.allocations() == allocations);
  auto more = all;
  for (std::int32_t row = 21; row < 41; row += 2)
    more.named.push_back(row);
  run(there, more, 2, true);
  BOOST_TEST(gpu.allocations() > allocations);
  BOOST_TEST(cuda::table_rows::memory_bytes(*what, 3, 3) >= rows);
  // Batches that select most rows copy whole tables. So packed rows are at most half of the
  // tables, and their positions, too. Both buffers are half as large again.
  const auto small = two_tables(12, 1);
  std::size_t elements = 0;
  for (const auto& table : small->row_sparse_gradients())
    elements += small->parameters().entries()[table.parameter].size;
  for (const std::size_t batches : {1, 10})
    BOOST_TEST(cuda::table_rows::memory_bytes(*small, 12, batches) <= 2 * 3 * (elements / 4) * 4);
}

BOOST_AUTO_TEST_SUITE_END()
