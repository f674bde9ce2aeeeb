// Several workers run a plan together, each with its own samples. They exchange sums
// (run_arguments::on_sums), for example for synchronized batch normalization.

#include "kernels/cpu/executor.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(sums_over_workers_of_a_plan)

namespace {

/// A model with two synchronized normalizations (over rows and over images), and with layers
/// before, between and after them.
struct model {
  graph g;
  expression loss;

  explicit model(bool all_workers) {
    const auto x = g.placeholder("x", {shape::batch, 4});
    const auto norm = [&](expression y, const std::string& name) {
      const shape dims{y.shape()[1]};
      const auto state = parameter_kind::state;
      const batch_norm_variables variables{g.variable(name + ".gain", dims),
                                           g.variable(name + ".bias", dims),
                                           g.variable(name + ".mean", dims, {}, state),
                                           g.variable(name + ".variance", dims, {}, state)};
      return batch_norm(y, variables, 1e-5, all_workers);
    };
    auto y = dense(x, g.variable("w1", {18, 4}), g.variable("b1", {18}));
    y = tanh(norm(y, "rows"));
    y = norm(reshape(y, {shape::batch, 3, 2, 3}), "images");
    y = dense(flatten(tanh(y)), g.variable("w2", {2, 18}), g.variable("b2", {2}));
    loss = to_scalar(y);
  }

  std::shared_ptr<const plan> make_plan(std::size_t rows) const {
    auto options = cpu_plan_options();
    options.max_rows = std::max<std::size_t>(rows, 1);
    options.loss = loss;
    options.gradients = true;
    return std::make_shared<const plan>(g, options);
  }
};

/// One worker: its samples, its weights and its executor.
template <class T>
struct worker {
  worker(const model& m, std::span<const double> x, const std::vector<std::vector<double>>& values)
    : rows(x.size() / 4), features(x.begin(), x.end()), run(m.make_plan(rows)),
      gradient(run.what().parameters().size(), T(-1)) {
    for (const auto& each : values)
      weights.emplace_back(each.begin(), each.end());
  }

  /// Continues the run until it needs sums over all workers, or ends. Then `asked` contains the
  /// sums of this worker.
  bool advance(bool together) {
    std::vector<const T*> pointers;
    for (const auto& x : weights)
      pointers.push_back(x.data());
    const std::vector<feed<T>> feeds{features.data()};
    const auto on_sums = [this](std::span<const double> x) { asked.assign(x.begin(), x.end()); };
    run_arguments<T> arguments;
    arguments.rows = rows;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    if (together)
      arguments.on_sums = on_sums;
    const auto result = run.advance(arguments);
    if (result)
      loss = result->loss;
    return result.has_value();
  }

  std::string search() {
    std::vector<const T*> pointers;
    for (const auto& x : weights)
      pointers.push_back(x.data());
    const std::vector<feed<T>> feeds{features.data()};
    run_arguments<T> arguments;
    arguments.rows = rows;
    arguments.weights = pointers;
    arguments.feeds = feeds;
    arguments.gradient = gradient;
    return run.find_not_finite(arguments);
  }

  std::size_t rows;
  std::vector<T> features;
  std::vector<std::vector<T>> weights;
  executor<T> run;
  std::vector<T> gradient;
  std::vector<double> asked;
  double loss = 0;
};

template <class T>
using workers = std::vector<std::unique_ptr<worker<T>>>;

/// Workers with these numbers of rows.
template <class T>
workers<T> make_workers(const model& m, const leaves& values,
                        const std::vector<std::size_t>& rows) {
  workers<T> result;
  std::span<const double> rest = values.feeds[0];
  for (const auto n : rows) {
    result.push_back(std::make_unique<worker<T>>(m, rest.first(4 * n), values.weights));
    rest = rest.subspan(4 * n);
  }
  return result;
}

/// Runs the workers together. Returns how often they exchanged sums.
template <class T>
std::size_t run_together(workers<T>& all) {
  std::size_t rows = 0;
  for (const auto& x : all)
    rows += x->rows;
  for (std::size_t stops = 0;; ++stops) {
    const auto done = std::ranges::count_if(all, [](auto& x) { return x->advance(true); });
    if (done > 0) {
      BOOST_REQUIRE(static_cast<std::size_t>(done) == all.size());
      return stops;
    }
    std::vector<double> totals(all.front()->asked.size());
    for (const auto& x : all) {
      BOOST_REQUIRE(!x->advance(true)); // a worker asks for sums only once, and then waits
      std::ranges::transform(totals, x->asked, totals.begin(), std::plus{});
    }
    for (const auto& x : all)
      x->run.give_sums(totals, rows);
  }
}

template <class T>
std::vector<double> summed_gradient(const workers<T>& all) {
  std::vector<double> result(all.front()->gradient.size());
  for (const auto& x : all)
    std::ranges::transform(result, x->gradient, result.begin(), std::plus{});
  return result;
}

const std::vector<std::vector<std::size_t>> divisions{{4, 4}, {3, 3, 2}, {5, 0, 3}, {8, 0}, {1, 7}};

} // namespace

BOOST_AUTO_TEST_CASE(several_workers_equal_one_with_all_samples) {
  const model m{true};
  const auto values = random_leaves(m.g, 8);
  auto one = make_workers<double>(m, values, {8});
  BOOST_TEST(one[0]->advance(false));
  for (const auto& rows : divisions) {
    auto exact = make_workers<double>(m, values, rows);
    BOOST_TEST(run_together(exact) == 4U);
    check_close(summed_gradient(exact), one[0]->gradient, 1e-9, 1e-9, "gradient, double");
    auto rounded = make_workers<float>(m, values, rows);
    run_together(rounded);
    const auto largest = *std::ranges::max_element(one[0]->gradient);
    check_close(summed_gradient(rounded), one[0]->gradient, 1e-5, 1e-5 * largest,
                "gradient, float");
    const auto loss = std::accumulate(rounded.begin(), rounded.end(), 0.0,
                                      [](double sum, auto& x) { return sum + x->loss; });
    BOOST_TEST(loss == one[0]->loss, boost::test_tools::tolerance(1e-5));
  }
}

// Moments of numbers whose mean is much larger than their deviation. Sums of squares in float32
// would lose the digits of the variance.
BOOST_AUTO_TEST_CASE(a_large_mean) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 2});
  const auto moments = channel_moments(x, true);
  auto options = cpu_plan_options();
  options.max_rows = 512;
  options.fetches = {moments};
  const auto p = std::make_shared<const plan>(g, options);
  BOOST_TEST(sums_over_workers(*p) == std::vector<std::size_t>{4},
             boost::test_tools::per_element());
  auto numbers = random_values(2 * 1024, "numbers");
  for (auto& each : numbers)
    each = static_cast<float>(each + 1000);
  std::vector<float> values(numbers.begin(), numbers.end());
  std::vector<double> totals(4);
  std::vector<executor<float>> runs;
  const auto advance = [&](std::size_t i) {
    const std::vector<feed<float>> feeds{values.data() + 1024 * i};
    const auto on_sums = [&](std::span<const double> own) {
      std::ranges::transform(totals, own, totals.begin(), std::plus{});
    };
    run_arguments<float> arguments;
    arguments.rows = 512;
    arguments.feeds = feeds;
    arguments.on_sums = on_sums;
    return runs[i].advance(arguments).has_value();
  };
  for (std::size_t i = 0; i < 2; ++i) {
    runs.emplace_back(p);
    BOOST_TEST(!advance(i));
  }
  std::vector<double> expected(4);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    expected[i % 2] += numbers[i] / 1024;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    expected[2 + i % 2] += std::pow(numbers[i] - expected[i % 2], 2) / 1024;
  for (std::size_t i = 0; i < 2; ++i) {
    runs[i].give_sums(totals, 1024);
    BOOST_TEST(advance(i));
    check_close(runs[i].fetched(0), expected, 1e-6, 0, "moments");
  }
}

BOOST_AUTO_TEST_CASE(one_worker_has_the_bits_of_a_plan_without_sums) {
  const model alone{false};
  const model shared{true};
  BOOST_TEST(sums_over_workers(*alone.make_plan(8)).empty());
  const auto values = random_leaves(alone.g, 8);
  auto a = make_workers<float>(alone, values, {8});
  auto b = make_workers<float>(shared, values, {8});
  BOOST_TEST(a[0]->advance(true));
  BOOST_TEST(b[0]->advance(false));
  BOOST_TEST(same_bits(a[0]->gradient, b[0]->gradient));
}

BOOST_AUTO_TEST_CASE(runs_that_follow_each_other) {
  const model m{true};
  const auto values = random_leaves(m.g, 8);
  auto all = make_workers<float>(m, values, {5, 3});
  run_together(all);
  const auto expected = summed_gradient(all);
  BOOST_TEST(!all[0]->advance(true));
  for (const auto& x : all)
    x->run.restart();
  run_together(all);
  BOOST_TEST(summed_gradient(all) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_search_uses_the_sums_of_the_last_run) {
  const model m{true};
  auto values = random_leaves(m.g, 8);
  values.feeds[0][30] = std::numeric_limits<double>::infinity(); // a feed of the second worker
  auto all = make_workers<float>(m, values, {5, 3});
  run_together(all);
  BOOST_TEST(all[1]->search() == "x");
  const auto found = all[0]->search();
  BOOST_TEST(found.starts_with("result channel_moments"), found);
}

BOOST_AUTO_TEST_CASE(sums_that_were_not_asked_for) {
  const model m{true};
  const auto values = random_leaves(m.g, 8);
  auto all = make_workers<float>(m, values, {8});
  const std::vector<double> right(36);
  BOOST_CHECK_THROW(all[0]->run.give_sums(right, 8), std::invalid_argument);
  BOOST_TEST(!all[0]->advance(true));
  BOOST_CHECK_THROW(all[0]->run.give_sums(std::span{right}.first(35), 8), std::invalid_argument);
  all[0]->run.give_sums(right, 8);
  BOOST_CHECK_THROW(all[0]->run.give_sums(right, 8), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
