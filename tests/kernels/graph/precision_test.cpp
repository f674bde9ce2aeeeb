#include "kernels/graph/precision.hpp"

#include "kernels/error.hpp"
#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sequence_operations.hpp"
#include "kernels/plan/plan.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

using namespace troupe;
using namespace troupe::test;

namespace {

std::string type(expression x) {
  return std::string(to_string(x.node().type));
}

std::size_t count(const graph& g, operation op) {
  return static_cast<std::size_t>(
    std::ranges::count(g.nodes(), op, [](const node& x) { return x.op; }));
}

} // namespace

BOOST_AUTO_TEST_SUITE(precision)

BOOST_AUTO_TEST_CASE(types_of_results) {
  graph g;
  g.set_precision(dtype::bfloat16);
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto w = g.variable("w", {4, 4});
  const auto b = g.variable("b", {4});
  const auto y = dense(x, w);
  BOOST_TEST(type(x) == "float32");
  BOOST_TEST(type(y) == "bfloat16");
  BOOST_TEST(g.at(y.node().inputs[0]).name == "x as bfloat16");
  BOOST_TEST(type(add_bias(y, b)) == "bfloat16");
  BOOST_TEST(g.at(add_bias(y, b).node().inputs[1]).name == "b"); // the bias is not cast
  for (const auto same : {relu(y), tanh(y), gelu(y), scale(y, 2), multiply(y, relu(y)),
                          dropout(y, 0.5, 1), reshape(y, {shape::batch, 2, 2}), slice(y, 1, 0, 2),
                          multiply_rows(y, b), normalize_rows(y, 1e-5), stop_gradient(y)})
    BOOST_TEST(type(same) == "bfloat16", same.name());
  for (const auto wide : {exp(y), log(y), softplus(y), sum(y), sum_last(y), softmax(y), y + x,
                          multiply(x, y), multiply(y, y), relu(x), normalize_rows(x, 1e-5)})
    BOOST_TEST(type(wide) == "float32", wide.name());
  const auto image = g.placeholder("image", {shape::batch, 3, 6, 6});
  const auto features = conv2d(image, g.variable("k", {5, 3, 3, 3}), {3, 3});
  BOOST_TEST(type(features) == "bfloat16");
  BOOST_TEST(type(max_pool(features, {2, 2, 2, 2})) == "bfloat16");
  BOOST_TEST(type(average_pool(features, {2, 2, 2, 2})) == "bfloat16");
  const auto moments = channel_moments(features);
  BOOST_TEST(type(moments) == "float32");
  BOOST_TEST(type(normalize_channels(features, moments, 1e-5)) == "bfloat16");
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  BOOST_TEST(type(softmax_cross_entropy(y, labels)) == "float32");
  BOOST_TEST(type(mean_squared_error(y, x)) == "float32");
  BOOST_TEST(type(binary_cross_entropy(y, x)) == "float32");
}

BOOST_AUTO_TEST_CASE(a_graph_of_float32_has_no_casts) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto y = relu(dense(x, g.variable("w", {3, 4})));
  BOOST_TEST(type(y) == "float32");
  BOOST_TEST(count(g, operation::cast) == 0U);
}

BOOST_AUTO_TEST_CASE(a_value_is_cast_once) {
  graph g;
  g.set_precision(dtype::float16);
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto w = g.variable("w", {4, 4});
  const auto y = dense(dense(x, w), w);
  BOOST_TEST(count(g, operation::cast) == 2U);
  BOOST_TEST(type(y) == "float16");
}

BOOST_AUTO_TEST_CASE(casts_by_hand) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto y = cast(x, dtype::float16);
  BOOST_TEST(type(y) == "float16");
  BOOST_TEST((cast(x, dtype::float32) == x));
  BOOST_TEST((cast(x, dtype::float16) == y));
  BOOST_TEST(type(cast(y, dtype::bfloat16)) == "bfloat16");
  BOOST_TEST(type(y + cast(x, dtype::bfloat16)) == "float32");
  BOOST_TEST(type(matmul(y, cast(g.variable("w", {4, 4}), dtype::float16))) == "float16");
  BOOST_CHECK_THROW(cast(labels, dtype::float16), input_error);
  BOOST_CHECK_THROW(cast(x, dtype::int32), input_error);
  BOOST_CHECK_THROW(cast(x, dtype::float64), input_error);
}

BOOST_AUTO_TEST_CASE(gradients_of_parameters_are_float32_without_a_cast) {
  graph g;
  g.set_precision(dtype::bfloat16);
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto y = dense_layer(dense_layer(x, "one", 5, activation::relu), "two", 3);
  std::vector<expression> variables;
  for (const auto& entry : g.parameters().entries())
    variables.push_back(g.find(entry.name));
  for (const auto dw : gradients(softmax_cross_entropy(y, labels), variables)) {
    BOOST_TEST(type(dw) == "float32");
    BOOST_TEST((dw.node().op == operation::matmul || dw.node().op == operation::sum_leading));
  }
}

BOOST_AUTO_TEST_CASE(a_seed_multiplies_gradients) {
  graph g;
  const auto w = g.variable("w", {3});
  const auto loss = sum(multiply(w, w));
  const auto factor = g.placeholder("factor", {});
  const std::vector<expression> variables{w};
  const auto plain = gradients(loss, variables)[0];
  const auto scaled = gradients(loss, variables, factor)[0];
  auto values = random_leaves(g, 1);
  values.feeds[0] = {8};
  const auto x = reference_value(g, plain.id(), values);
  const auto y = reference_value(g, scaled.id(), values);
  for (std::size_t i = 0; i < x.size(); ++i)
    BOOST_TEST(y[i] == 8 * x[i]);
  BOOST_CHECK_THROW(gradients(loss, variables, w), input_error);
}

BOOST_AUTO_TEST_CASE(lowered_graphs) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  auto y = dense_layer(x, "one", 6, activation::relu);
  const auto mean = g.variable("mean", {6}, {}, parameter_kind::state, 0.3);
  const auto frozen = g.variable("frozen", {6}, {}, parameter_kind::frozen);
  g.update_state(mean, sum_leading(y));
  y = dense_layer(multiply_rows(y, frozen), "two", 3);
  const auto loss = softmax_cross_entropy(y, labels);
  std::vector<std::uint32_t> ids;
  const auto lowered = lower_precision(g, dtype::bfloat16, ids);
  BOOST_TEST((lowered.parameters() == g.parameters()));
  BOOST_REQUIRE(lowered.placeholders().size() == 2U);
  for (std::size_t i = 0; i < 2; ++i)
    BOOST_TEST(lowered.at(lowered.placeholders()[i]).name == g.at(g.placeholders()[i]).name);
  for (std::uint32_t id = 0; id < ids.size(); ++id) {
    BOOST_TEST(lowered.at(ids[id]).name == g.at(id).name);
    BOOST_TEST((lowered.at(ids[id]).op == g.at(id).op));
    for (const auto input : lowered.at(ids[id]).inputs)
      BOOST_TEST(input < ids[id]);
  }
  BOOST_TEST((lowered.at(ids[y.id()]).type == dtype::bfloat16));
  BOOST_TEST((lowered.at(ids[loss.id()]).type == dtype::float32));
  BOOST_REQUIRE(lowered.state_updates().size() == 1U);
  BOOST_TEST(lowered.state_updates()[0].first == ids[mean.id()]);
  // All parameters are cast first, so that a GPU needs only one launch for all casts.
  std::size_t casts = 0;
  for (const auto& n : lowered.nodes()) {
    if (n.inputs.empty())
      continue;
    if (n.op != operation::cast || lowered.at(n.inputs[0]).op != operation::variable)
      break;
    ++casts;
  }
  BOOST_TEST(casts == 2U);
  // The graph for 16 bits is a copy. The original graph does not change.
  BOOST_TEST(count(g, operation::cast) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
