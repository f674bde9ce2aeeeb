#include "kernels/graph/gradients.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto batch = shape::batch;

/// Checks second derivatives: adds the gradient of `loss` with respect to w to the graph, and then
/// checks the gradient of the sum of its squares.
void check_second(graph& g, expression loss, expression w) {
  const std::vector xs{w};
  const auto first = troupe::gradients(loss, xs)[0];
  check_forward(g, first, 1e-4);
  check_gradient(g, sum(first * first), 1e-3);
}

} // namespace

BOOST_AUTO_TEST_SUITE(gradients)

BOOST_AUTO_TEST_CASE(second_gradients) {
  for (auto how : {activation::relu, activation::tanh, activation::sigmoid}) {
    graph g;
    auto x = g.placeholder("x", {batch, 4});
    auto t = g.placeholder("t", {batch, 2});
    auto w = g.variable("w", {3, 4});
    auto h = activate(dense(x, w, g.variable("b", {3})), how);
    check_second(g, mean_squared_error(dense_layer(h, "out", 2), t), w);
  }
}

BOOST_AUTO_TEST_CASE(second_gradient_of_softmax_cross_entropy) {
  graph g;
  auto x = g.placeholder("x", {batch, 4});
  auto labels = g.placeholder("labels", {batch}, dtype::int32);
  auto w = g.variable("w", {3, 4});
  check_second(g, softmax_cross_entropy(dense(x, w), labels), w);
}

BOOST_AUTO_TEST_CASE(tied_weights_add_up) {
  graph g;
  auto x = g.placeholder("x", {batch, 4});
  auto w = g.variable("w", {4, 4});
  check_gradient(g, sum(tanh(dense(tanh(dense(x, w)), w))));
}

BOOST_AUTO_TEST_CASE(a_variable_that_is_a_gradient) {
  // The gradient of sum(a * b) with respect to a is b itself. In sum(a + b), both variables have
  // the same gradient. In both cases, values must be copied to the places of the gradients.
  graph g;
  auto a = g.variable("a", {3});
  auto b = g.variable("b", {3});
  check_gradient(g, sum(a * b));
  check_gradient(g, sum(a + b));
  check_gradient(g, sum(a));
}

BOOST_AUTO_TEST_CASE(independent_variables_have_gradient_zero) {
  graph g;
  auto x = g.placeholder("x", {batch, 4});
  auto used = g.variable("used", {2, 4});
  auto unused = g.variable("unused", {5});
  auto loss = sum(dense(x, used));
  const std::vector xs{unused};
  BOOST_TEST(troupe::gradients(loss, xs)[0].node().values == std::vector<double>{0});
  check_gradient(g, loss);
  check_gradient(g, sum(x));
}

BOOST_AUTO_TEST_CASE(inputs_get_no_gradient_unless_asked_for) {
  graph g;
  auto x = g.placeholder("x", {batch, 4});
  auto w = g.variable("w", {3, 4});
  auto loss = sum(dense(x, w));
  const std::vector only_w{w};
  const auto before = g.nodes().size();
  troupe::gradients(loss, only_w);
  std::size_t products = 0;
  for (std::size_t id = before; id < g.nodes().size(); ++id)
    products += g.nodes()[id].op == operation::matmul;
  BOOST_TEST(products == 1U);
  const std::vector only_x{x};
  check_forward(g, troupe::gradients(loss, only_x)[0]);
}

BOOST_AUTO_TEST_CASE(only_scalars_can_be_differentiated) {
  graph g;
  auto w = g.variable("w", {3, 4});
  const std::vector xs{w};
  BOOST_CHECK_THROW(troupe::gradients(w, xs), input_error);
  graph other;
  const std::vector foreign{other.variable("w", {3})};
  BOOST_CHECK_THROW(troupe::gradients(sum(w), foreign), input_error);
}

BOOST_AUTO_TEST_SUITE_END()
