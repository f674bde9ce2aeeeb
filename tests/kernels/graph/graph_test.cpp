#include "kernels/graph/graph.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/operations.hpp"

#include <boost/test/unit_test.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(graph)

BOOST_AUTO_TEST_CASE(prints_itself) {
  troupe::graph g;
  auto x = g.placeholder("x", {shape::batch, 3});
  auto y = dense_layer(x, "dense_1", 2, activation::relu);
  scale(y, 0.5);
  BOOST_TEST(to_string(g)
             == "0 x = placeholder() : float32 (batch, 3)\n"
                "1 dense_1.weight = variable() : float32 (2, 3)\n"
                "2 matmul_2 = matmul(x, dense_1.weight^T) : float32 (batch, 2)\n"
                "3 dense_1.bias = variable() : float32 (2)\n"
                "4 add_bias_4 = add_bias(matmul_2, dense_1.bias) : float32 (batch, 2)\n"
                "5 relu_5 = relu(add_bias_4) : float32 (batch, 2)\n"
                "6 scale_6 = scale(relu_5, 0.500000) : float32 (batch, 2)\n");
}

BOOST_AUTO_TEST_CASE(variables_make_the_layout) {
  troupe::graph g;
  auto x = g.placeholder("x", {shape::batch, 3});
  dense_layer(x, "dense_1", 2);
  g.variable("mean", {4}, initializer::zeros(), parameter_kind::state);
  BOOST_TEST(to_string(g.parameters())
             == "dense_1.weight (2, 3) float32 trainable at 0, starts as glorot_uniform\n"
                "dense_1.bias (2) float32 trainable at 6, starts as zeros\n"
                "mean (4) float32 state at 8, starts as zeros\n");
  BOOST_TEST(g.find("mean").node().index == 2U);
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
  troupe::graph g;
  g.placeholder("x", {shape::batch, 3});
  g.variable("w", {2});
  BOOST_CHECK_THROW(g.placeholder("x", {shape::batch}), input_error);
  BOOST_CHECK_THROW(g.variable("w", {3}), input_error);
  BOOST_CHECK_THROW(g.find("y"), input_error);
  BOOST_CHECK_THROW(g.constant({1, 2, 3}, {2}), input_error);
  BOOST_CHECK_THROW(expression().node(), input_error);
}

BOOST_AUTO_TEST_SUITE_END()
