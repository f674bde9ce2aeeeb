#include "kernels/graph/operations.hpp"

#include "kernels/devices/graph_session.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/gradients.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(operations)

namespace {

constexpr auto batch = shape::batch;

/// An input x (batch, n), and h = x w, which depends on a variable w (n, n). So gradients with
/// respect to w can be checked.
struct model {
  graph g;
  expression x = g.placeholder("x", {batch, 5});
  expression w = g.variable("w", {5, 5});
  expression h = matmul(x, w);
};

} // namespace

BOOST_AUTO_TEST_CASE(matmul_with_and_without_transposes) {
  for (std::int64_t n : {1, 2, 5, 16, 17, 31}) {
    graph g;
    auto x = g.placeholder("x", {batch, 7});
    auto w = g.variable("w", {7, n});
    check_both(g, matmul(x, w), 2e-6 * 10);
    auto v = g.variable("v", {n, 7});
    check_both(g, matmul(x, v, false, true), 2e-6 * 10);
    auto y = g.placeholder("y", {batch, n});
    auto u = g.variable("u", {3, n});
    // A sum over the batch, of shape (7, n).
    check_both(g, matmul(x, matmul(y, u, false, true), true));
    check_both(g, matmul(u, v));
  }
}

BOOST_AUTO_TEST_CASE(matmul_transposed_twice) {
  graph g;
  auto a = g.variable("a", {4, 3});
  auto b = g.variable("b", {5, 4});
  check_both(g, matmul(a, b, true, true));
}

BOOST_AUTO_TEST_CASE(matmul_treats_leading_dimensions_as_rows) {
  graph g;
  auto x = g.placeholder("x", {batch, 3, 4});
  auto w = g.variable("w", {6, 4});
  auto y = dense(x, w, g.variable("b", {6}));
  BOOST_TEST(to_string(y.shape()) == "(batch, 3, 6)");
  check_both(g, tanh(y));
}

BOOST_AUTO_TEST_CASE(matmul_by_tensors_with_three_dimensions) {
  graph g;
  auto x = g.placeholder("x", {batch, 6});
  auto y = g.placeholder("y", {batch, 4});
  auto w = g.variable("w", {2, 3, 4});
  check_both(g, matmul(x, w));
  check_both(g, matmul(y, w, false, true));
  check_both(g, matmul(w, g.variable("v", {5, 6}), true, true));
}

BOOST_AUTO_TEST_CASE(dense_with_bias_and_activations) {
  for (auto how : {activation::none, activation::relu, activation::tanh, activation::sigmoid}) {
    for (bool bias : {false, true}) {
      graph g;
      auto x = g.placeholder("x", {batch, 13});
      auto h = dense_layer(x, "dense_1", 9, how, bias);
      check_both(g, dense_layer(h, "dense_2", 4, how, bias));
    }
  }
}

BOOST_AUTO_TEST_CASE(element_wise) {
  model m;
  auto v = matmul(m.x, m.g.variable("v", {5, 5}));
  check_both(m.g, m.h + v);
  check_both(m.g, m.h - v);
  check_both(m.g, m.h * v);
  check_both(m.g, -2.5 * m.h);
  check_both(m.g, relu(m.h));
  check_both(m.g, tanh(m.h));
  check_both(m.g, sigmoid(m.h));
  check_both(m.g, relu_gradient(v, relu(m.h)));
  check_both(m.g, tanh_gradient(v, tanh(m.h)));
  check_both(m.g, sigmoid_gradient(v, sigmoid(m.h)));
  check_both(m.g, leaky_relu(m.h, 0.1));
  check_both(m.g, leaky_relu_gradient(v, leaky_relu(m.h), 0.01));
  check_both(m.g, offset(m.h, -1.5));
  check_both(m.g, v / offset(m.h * m.h, 1));
  check_both(m.g, exp(tanh(m.h)));
  check_both(m.g, log(offset(absolute(m.h), 0.5)));
  check_both(m.g, square_root(offset(m.h * m.h, 0.5)));
  check_both(m.g, absolute(m.h));
  check_both(m.g, sign(m.h) * m.h);
  check_both(m.g, erf(m.h));
  check_both(m.g, erfc(m.h));
  check_both(m.g, sine(scale(m.h, 3)));
  check_both(m.g, cosine(scale(m.h, 3)));
  check_both(m.g, round(scale(m.h, 3)) * m.h);
  check_both(m.g, softplus(m.h));
  check_both(m.g, gelu(m.h));
  check_both(m.g, gelu_gradient(v, m.h));
}

BOOST_AUTO_TEST_CASE(comparisons) {
  model m;
  auto v = matmul(m.x, m.g.variable("v", {5, 5}));
  check_both(m.g, maximum(m.h, v));
  check_both(m.g, minimum(m.h, v));
  check_both(m.g, at_least(m.h, -0.7));
  check_both(m.g, at_most(m.h, 1.3));
  check_both(m.g, at_most(at_least(m.h, 0), 6));
  check_both(m.g, greater(m.h, v) * m.h);
  check_both(m.g, above(m.h, 0.3) * m.h);
  check_both(m.g, select(m.h, v, m.h * v));
  // These operations are fused into chains. Their operands are computed in the same chain.
  check_both(m.g, select(m.h - v, tanh(v), sigmoid(m.h)) + maximum(tanh(m.h), minimum(v, m.h)));
}

// An infinite bound has no effect, and NaN stays NaN.
BOOST_AUTO_TEST_CASE(comparisons_of_extreme_numbers) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float most = std::numeric_limits<float>::max();
  std::vector<float> numbers{0,     -0.0F,  0.001F, -0.001F, 1,     -1,
                             65504, -65504, 1e-30F, 1e30F,   -1e30F};
  numbers.insert(numbers.end(), {most, -most, infinity, -infinity, std::nanf("")});
  std::vector<float> a;
  std::vector<float> b;
  for (const float x : numbers)
    for (const float y : numbers) {
      a.push_back(x);
      b.push_back(y);
    }
  graph g;
  const auto n = static_cast<std::int64_t>(a.size());
  const auto x = g.placeholder("x", {n});
  const auto y = g.placeholder("y", {n});
  std::vector<expression> fetches{maximum(x, y), minimum(x, y), greater(x, y), select(x, x, y)};
  for (const float bound : numbers)
    if (!std::isnan(bound))
      for (const auto z : {at_least(x, bound), at_most(x, bound), above(x, bound)})
        fetches.push_back(z);
  graph_session<float> session{g};
  const auto found = session.run(std::array{session_feed<float>{x, std::span<const float>{a}},
                                            session_feed<float>{y, std::span<const float>{b}}},
                                 fetches);
  const auto values = std::vector<std::vector<double>>{{a.begin(), a.end()}, {b.begin(), b.end()}};
  for (std::size_t i = 0; i < fetches.size(); ++i)
    check_close(std::span{found[i]}, reference_value(g, fetches[i].id(), {0, {}, values}), 0, 0,
                fetches[i].name());
  BOOST_CHECK_THROW(at_least(x, NAN), input_error);
}

// The branch that is not selected contains NaN, which must not reach the result or its gradient.
BOOST_AUTO_TEST_CASE(select_keeps_nan_in_its_branch) {
  graph g;
  const auto x = g.variable("x", {4});
  const auto m = g.constant({1, 0, 1, 0}, {4});
  const auto y = select(m, log(x), x);
  const auto slopes = gradients(sum(y), std::array{x});
  graph_session<double> session{g};
  std::ranges::copy(std::array{2.0, -1.0, 4.0, 0.0}, session.variables().begin());
  const auto found = session.run({}, {y, slopes[0]});
  check_close(std::span<const double>{found[0]},
              std::array{std::log(2.0), -1.0, std::log(4.0), 0.0}, 1e-14, 0, "values");
  check_close(std::span<const double>{found[1]}.first(2), std::array{0.5, 1.0}, 1e-14, 0, "slopes");
  // If both operands are equal, the whole gradient goes to the second one.
  const auto other = g.variable("other", {4});
  const auto ties = gradients(sum(maximum(x, other) + minimum(x, other)), std::array{x, other});
  std::ranges::copy(std::array{2.0, -1.0, 4.0, 0.0}, session.variable("other").begin());
  const auto shares = session.run({}, {ties[0], ties[1]});
  BOOST_TEST(shares[0] == std::vector<double>(4, 0), boost::test_tools::per_element());
  BOOST_TEST(shares[1] == std::vector<double>(4, 2), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(chains) {
  model m;
  auto v = matmul(m.x, m.g.variable("v", {5, 5}));
  // Three difficult chains of fused operations: a value that is read twice, an operation whose
  // operands are both computed in the chain, and a chain that is too long for one step.
  auto shared = tanh(m.h + v);
  check_both(m.g, shared * sigmoid(shared) + exp(scale(m.h - v, 0.1)) * tanh(v * m.h));
  auto y = m.h;
  for (int i = 0; i < 60; ++i)
    y = tanh(offset(y * v, 0.01));
  check_both(m.g, y, 1e-4);
}

BOOST_AUTO_TEST_CASE(labels_as_numbers) {
  graph g;
  auto labels = g.placeholder("labels", {batch}, dtype::int32);
  auto z = dense_layer(g.placeholder("x", {batch, 4}), "dense", 1);
  auto y = to_float(labels, {batch, 1});
  check_both(g, z * y);
  check_forward(g, binary_correct(z, labels));
}

BOOST_AUTO_TEST_CASE(bias_alone) {
  model m;
  check_both(m.g, add_bias(m.h, m.g.variable("b", {5})));
}

BOOST_AUTO_TEST_CASE(same_operand_twice) {
  model m;
  check_both(m.g, m.h * m.h);
  check_both(m.g, m.h + m.h);
}

BOOST_AUTO_TEST_CASE(reductions_and_broadcasts) {
  model m;
  check_both(m.g, sum(m.h));
  check_both(m.g, sum_leading(m.h));
  check_both(m.g, sum_last(m.h));
  check_both(m.g, broadcast(sum(m.h), {batch, 2}));
  check_both(m.g, broadcast_leading(sum_leading(m.h), {batch, 5}));
  check_both(m.g, broadcast_last(sum_last(m.h), {batch, 3}));
}

BOOST_AUTO_TEST_CASE(softmax_and_cross_entropy) {
  for (std::int64_t classes : {3, 10, 17, 70}) {
    graph g;
    auto x = g.placeholder("x", {batch, 4});
    auto labels = g.placeholder("labels", {batch}, dtype::int32);
    auto z = dense_layer(x, "dense", classes);
    check_both(g, softmax(z));
    auto loss = softmax_cross_entropy(z, labels);
    check_forward(g, loss);
    check_gradient(g, loss);
    check_both(g, softmax_cross_entropy_gradient(z, labels));
    check_forward(g, softmax_correct(z, labels));
    check_gradient(g, 0.5 * loss + sum(z * z));
  }
}

BOOST_AUTO_TEST_CASE(cross_entropy_with_smoothing_and_an_ignored_label) {
  for (const auto& how :
       {cross_entropy{0.1, std::nullopt}, cross_entropy{0, 1}, cross_entropy{0.3, 2}}) {
    graph g;
    auto x = g.placeholder("x", {batch, 4});
    auto labels = g.placeholder("labels", {batch}, dtype::int32);
    auto z = dense_layer(x, "dense", 5);
    auto loss = softmax_cross_entropy(z, labels, how);
    check_forward(g, loss);
    check_gradient(g, loss);
    check_forward(g, softmax_cross_entropy_gradient(z, labels, how));
    check_forward(g, softmax_correct(z, labels, how));
    // Two losses read the same operands. Each of them must keep its own results.
    check_gradient(g, loss + softmax_cross_entropy(z, labels));
  }
}

BOOST_AUTO_TEST_CASE(cross_entropy_is_a_mean_over_positions_and_a_sum_over_samples) {
  graph g;
  auto x = g.placeholder("x", {batch, 3, 4});
  auto labels = g.placeholder("labels", {batch, 3}, dtype::int32);
  auto z = dense_layer(x, "dense", 5);
  auto loss = softmax_cross_entropy(z, labels, {0.1, 1});
  check_forward(g, loss);
  check_gradient(g, loss);
  check_both(g, softmax_cross_entropy_gradient(z, labels));
  BOOST_TEST(loss.node().factor == 1.0 / 3);
}

BOOST_AUTO_TEST_CASE(ignored_labels_are_not_counted) {
  graph g;
  auto z = g.placeholder("z", {batch, 3, 2});
  auto labels = g.placeholder("labels", {batch, 3}, dtype::int32);
  const cross_entropy how{0, -100};
  leaves values;
  values.rows = 2;
  values.feeds = {{0, 1, 1, 0, 5, 0, 0, 1, 1, 0, 0, 3}, {1, -100, 1, 1, -100, -100}};
  const auto result = execute<float>(g, values, softmax_cross_entropy(z, labels, how), {}, false,
                                     softmax_correct(z, labels, how));
  BOOST_TEST(result.correct == 2u);
  BOOST_TEST(result.counted == 3u);
}

BOOST_AUTO_TEST_CASE(squared_error_is_a_mean_over_outputs_and_a_sum_over_samples) {
  model m;
  auto targets = m.g.placeholder("targets", {batch, 5});
  auto loss = mean_squared_error(m.h, targets);
  BOOST_TEST(loss.node().factor == 0.2);
  check_forward(m.g, loss);
  check_gradient(m.g, loss);
  check_gradient(m.g, mean_squared_error(targets, m.h) * loss);
}

BOOST_AUTO_TEST_CASE(losses_of_numbers) {
  model m;
  auto targets = m.g.placeholder("targets", {batch, 5});
  for (auto loss : {mean_absolute_error(m.h, targets), hinge(m.h, sign(targets)),
                    binary_cross_entropy(m.h, sigmoid(targets))}) {
    check_forward(m.g, loss);
    check_gradient(m.g, loss);
  }
}

BOOST_AUTO_TEST_CASE(binary_cross_entropy_does_not_overflow) {
  graph g;
  auto z = g.placeholder("z", {batch, 1});
  auto t = g.placeholder("t", {batch, 1});
  auto loss = binary_cross_entropy(z, t);
  leaves values{2, {}, {{500, -500}, {0, 1}}};
  BOOST_TEST(execute<float>(g, values, loss, {}, false).loss == 1000);
  values.feeds = {{500, -500}, {1, 0}};
  BOOST_TEST(execute<float>(g, values, loss, {}, false).loss == 0);
}

BOOST_AUTO_TEST_CASE(misfits_name_both_tensors_and_their_shapes) {
  graph g;
  auto x = g.placeholder("images", {batch, 784});
  auto w = g.variable("dense_1.weight", {256, 783});
  auto labels = g.placeholder("labels", {batch}, dtype::int32);
  auto names_both = [](const std::string& a, const std::string& b) {
    return [=](const input_error& e) {
      const std::string text = e.what();
      BOOST_TEST_MESSAGE(text);
      return text.find(a) != std::string::npos && text.find(b) != std::string::npos;
    };
  };
  const std::string images = "\"images\" (batch, 784)";
  BOOST_CHECK_EXCEPTION(dense(x, w), input_error,
                        names_both(images, "\"dense_1.weight\" (256, 783)"));
  BOOST_CHECK_EXCEPTION(add(x, w), input_error,
                        names_both(images, "\"dense_1.weight\" (256, 783)"));
  BOOST_CHECK_EXCEPTION(add_bias(x, g.variable("b", {3})), input_error,
                        names_both(images, "\"b\" (3)"));
  BOOST_CHECK_EXCEPTION(softmax_cross_entropy(x, x), input_error, names_both("images", "int32"));
  BOOST_CHECK_EXCEPTION(softmax_cross_entropy(w, labels), input_error,
                        names_both("\"dense_1.weight\" (256, 783)", "\"labels\" (batch)"));
  BOOST_CHECK_EXCEPTION(relu(labels), input_error, names_both("\"labels\" (batch)", "int32"));
  BOOST_CHECK_EXCEPTION(matmul(w, x, false, true), input_error,
                        names_both(images, "\"dense_1.weight\" (256, 783)"));
  BOOST_CHECK_THROW(dense_layer(x, "none", 0), input_error);
  graph other;
  BOOST_CHECK_THROW(add(x, other.placeholder("images", {batch, 784})), input_error);
  BOOST_CHECK_THROW(relu(expression()), input_error);
}

BOOST_AUTO_TEST_CASE(bad_rates_and_smoothings) {
  const auto says = [](const char* text) {
    return [text](const input_error& e) {
      return std::string(e.what()).find(text) != std::string::npos;
    };
  };
  graph g;
  auto x = g.placeholder("images", {batch, 4});
  auto labels = g.placeholder("labels", {batch}, dtype::int32);
  for (double rate : {-0.1, 1.0, std::nan("")}) {
    BOOST_CHECK_EXCEPTION(dropout(x, rate, "drop"), input_error, says("dropout: a rate of"));
    BOOST_CHECK_EXCEPTION(softmax_cross_entropy(x, labels, {rate, std::nullopt}), input_error,
                          says("label smoothing"));
  }
}

BOOST_AUTO_TEST_SUITE_END()
