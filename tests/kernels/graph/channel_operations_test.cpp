#include "kernels/graph/channel_operations.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(channel_operations)

namespace {

constexpr auto batch = shape::batch;

/// A tensor of images or rows that depends on a variable, so that gradients with respect to this
/// variable can be checked.
struct channels {
  graph g;
  expression x;
  batch_norm_variables variables;

  explicit channels(const shape& dims) {
    const auto elements = static_cast<std::int64_t>(dims.elements(1));
    auto features = g.placeholder("features", {batch, 3});
    x = reshape(dense(features, g.variable("w", {elements, 3})), dims);
    const shape each{dims[1]};
    variables.gain = g.variable("gain", each);
    variables.bias = g.variable("bias", each);
    variables.running_mean = g.variable("mean", each, initializer::zeros(), parameter_kind::state);
    variables.running_variance =
      g.variable("variance", each, initializer::constant(1), parameter_kind::state);
  }
};

/// The CPU computes channels in groups of 16. These sizes have fewer channels than a group, exactly
/// as many, and more. The numbers of pixels vary in the same way.
const std::vector<shape> sizes{{batch, 3, 2, 2}, {batch, 1, 1, 1},  {batch, 17},
                               {batch, 16, 3},   {batch, 2, 3, 17}, {batch, 33}};

template <class F>
void refused(F f, const char* text) {
  BOOST_CHECK_EXCEPTION(f(), input_error, [text](const input_error& error) {
    return std::string(error.what()).find(text) != std::string::npos;
  });
}

} // namespace

BOOST_AUTO_TEST_CASE(factors_per_channel) {
  for (const auto& dims : sizes) {
    channels c(dims);
    check_both(c.g, multiply_channels(c.x, c.variables.gain));
  }
}

BOOST_AUTO_TEST_CASE(moments_of_channels) {
  for (const auto& dims : sizes) {
    channels c(dims);
    const auto moments = channel_moments(c.x);
    check_forward(c.g, moments);
    check_forward(c.g, normalize_channels(c.x, moments), 1e-4);
    check_forward(c.g, normalize_channels_gradient(tanh(c.x), c.x, moments, 1e-3), 1e-4);
    check_forward(c.g, summed_mean(moments));
    check_forward(c.g,
                  summed_variance(moments, static_cast<std::int64_t>(dims.elements(1)) / dims[1]));
  }
}

// Epsilon is large, so that rows with almost equal values cause little numerical noise.
BOOST_AUTO_TEST_CASE(gradient_of_normalization) {
  for (const auto& dims : sizes) {
    channels c(dims);
    const auto y = normalize_channels(c.x, channel_moments(c.x), 0.1);
    check_gradient(c.g, sum(tanh(y * multiply_channels(y, c.variables.gain))), 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(groups) {
  for (const auto& dims : {shape{batch, 6, 2, 3}, shape{batch, 6}, shape{batch, 6, 5}})
    for (std::int64_t count : {1, 3, 6}) {
      channels c(dims);
      check_both(c.g, group_norm(c.x, c.variables.gain, c.variables.bias, count, 0.1), 1e-4);
    }
}

BOOST_AUTO_TEST_CASE(testing_uses_the_running_statistics) {
  channels c({batch, 3, 2, 2});
  auto values = random_leaves(c.g, 2);
  values.weights[4] = {0.5, 2, 4};
  const auto y = batch_norm_testing(c.x, c.variables, 0.25);
  const auto result = execute<double>(c.g, values, {}, {y, c.x}, false);
  std::vector<double> expected;
  for (std::size_t i = 0; i < result.fetches[1].size(); ++i) {
    const auto k = i / 4 % 3;
    expected.push_back((result.fetches[1][i] - values.weights[3][k])
                         / std::sqrt(values.weights[4][k] + 0.25) * values.weights[1][k]
                       + values.weights[2][k]);
  }
  check_close(result.fetches[0], expected, 1e-12, 1e-12, "testing");
}

BOOST_AUTO_TEST_CASE(statistics_reach_the_gradient) {
  channels c({batch, 2, 3});
  const auto y = batch_norm(c.x, c.variables);
  const auto loss = sum(tanh(y));
  for (std::size_t rows : {0, 1, 5}) {
    const auto values = random_leaves(c.g, rows);
    const auto result = execute<double>(c.g, values, loss, {c.x}, true);
    const auto& x = result.fetches[0];
    std::vector<double> expected;
    for (std::size_t k = 0; k < 2; ++k) {
      double mean = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        mean += i / 3 % 2 == k ? x[i] / (3.0 * static_cast<double>(rows)) : 0;
      expected.push_back(mean * static_cast<double>(rows));
    }
    for (std::size_t k = 0; k < 2; ++k) {
      double squares = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        squares += i / 3 % 2 == k ? std::pow(x[i] - expected[k] / static_cast<double>(rows), 2) : 0;
      const auto n = 3 * static_cast<double>(rows);
      expected.push_back(rows == 0 ? 0 : static_cast<double>(rows) * squares / (n - 1));
    }
    check_close(std::span{result.gradient}.last(4), expected, 1e-12, 1e-12, "statistics");
  }
}

// One value is the gradient of w and also the update of two states. It must be copied to all three
// places.
BOOST_AUTO_TEST_CASE(updates_may_be_anything) {
  graph g;
  auto x = g.placeholder("x", {batch, 2});
  auto w = g.variable("w", {2});
  auto state = g.variable("state", {2}, {}, parameter_kind::state);
  auto other = g.variable("other", {2}, {}, parameter_kind::state);
  auto untouched = g.variable("untouched", {2}, {}, parameter_kind::state);
  const auto sums = sum_leading(x);
  g.update_state(state, sums);
  g.update_state(other, sums);
  const leaves values{2, {{1, 1}, {3, 3}, {4, 4}, {5, 5}}, {{1, 2, 3, 4}}};
  const auto result = execute<double>(g, values, sum(multiply_rows(x, w)), {}, true);
  BOOST_TEST(result.gradient == (std::vector<double>{4, 6, 4, 6, 4, 6, 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(untouched.valid());
}

// If the statistics are frozen, training uses them, as testing does.
BOOST_AUTO_TEST_CASE(frozen_statistics_normalize_in_training) {
  graph g;
  auto x = g.placeholder("x", {batch, 2});
  const auto frozen = parameter_kind::frozen;
  batch_norm_variables variables{g.variable("gain", {2}), g.variable("bias", {2}),
                                 g.variable("mean", {2}, {}, frozen),
                                 g.variable("variance", {2}, {}, frozen)};
  const auto training = batch_norm(x, variables);
  BOOST_TEST(g.state_updates().empty());
  const leaves values{2, {{1, 2}, {0.5, 0}, {1, -1}, {4, 9}}, {{3, 5, 7, 8}}};
  const auto a = execute<double>(g, values, sum(training), {training}, false);
  const auto testing = batch_norm_testing(x, variables);
  const auto b = execute<double>(g, values, sum(testing), {testing}, false);
  BOOST_TEST(a.fetches[0] == b.fetches[0], boost::test_tools::per_element());
  variables.running_mean = g.variable("moving", {2}, {}, parameter_kind::state);
  refused([&] { batch_norm(x, variables); },
          "only one of \"moving\" and \"variance\" is frozen; freeze both or neither");
}

BOOST_AUTO_TEST_CASE(misfits) {
  channels c({batch, 2, 3});
  auto& g = c.g;
  auto w = g.variable("other", {3});
  refused([&] { multiply_channels(c.x, w); }, "\"other\" (3): expected a factor per channel");
  refused([&] { channel_moments(w); }, "(batch, channels, ...)");
  refused([&] { normalize_channels(c.x, w); }, "moments of its channels");
  refused([&] { normalize_channels(c.x, channel_moments(c.x), 0); }, "epsilon is 0");
  refused([&] { group_norm(c.x, c.variables.gain, c.variables.bias, 4); },
          "4 groups do not divide the 2 channels");
  refused([&] { summed_mean(w); }, "moments (2, channels)");
  refused([&] { g.update_state(w, w); }, "\"other\" is not a state variable");
  refused([&] { g.update_state(c.variables.running_mean, w); }, "the same shape");
  auto y = batch_norm(c.x, c.variables);
  refused([&] { batch_norm(c.x, c.variables); }, "\"mean\" is updated already");
  const std::vector xs{c.variables.gain};
  refused(
    [&] {
      const auto normal = normalize_channels(y, channel_moments(y));
      const auto first = gradients(sum(tanh(normal)), xs)[0];
      gradients(sum(first * first), xs);
    },
    "cannot be differentiated again");
}

BOOST_AUTO_TEST_SUITE_END()
