#include "kernels/cpu/operation_table.hpp"

#include "kernels/cpu/elementwise.hpp"
#include "kernels/cpu/executor.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/operation_traits.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <set>
#include <string>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(operation_table)

namespace {

std::vector<operation> all_operations() {
  std::vector<operation> result;
  for (std::size_t i = 0; i < operation_count; ++i)
    result.push_back(static_cast<operation>(i));
  return result;
}

/// True if a plan can have steps with this operation.
bool is_planned(operation op) {
  switch (traits_of(op).kind) {
  case operation_kind::leaf:
  case operation_kind::view:
    return false;
  case operation_kind::softmax_loss:
    return op == operation::softmax_cross_entropy;
  case operation_kind::attention:
    return op != operation::attention_statistics;
  default:
    return true;
  }
}

} // namespace

BOOST_AUTO_TEST_CASE(rows_of_traits_have_names_of_their_own) {
  std::set<std::string_view> names;
  for (const auto op : all_operations()) {
    BOOST_TEST((traits_of(op).op == op), to_string(op));
    // Every operation has a gradient rule. If an operation has no derivative, its rule reports an
    // error. This cannot be a static_assert: with UndefinedBehaviorSanitizer, g++ compares
    // functions with null only at run time.
    BOOST_TEST((traits_of(op).gradient != nullptr), to_string(op));
    BOOST_TEST(names.insert(to_string(op)).second, to_string(op));
  }
}

BOOST_AUTO_TEST_CASE(the_cpu_runs_what_plans_have) {
  for (const auto op : all_operations()) {
    BOOST_TEST((cpu::row_of<float>(op).run != nullptr) == is_planned(op), to_string(op));
    BOOST_TEST((cpu::row_of<double>(op).run != nullptr) == is_planned(op), to_string(op));
  }
}

BOOST_AUTO_TEST_CASE(element_wise_operations_have_a_loop) {
  for (const auto op : all_operations()) {
    BOOST_TEST((cpu::loop_of<float>(op) != nullptr) == is_elementwise(op), to_string(op));
    BOOST_TEST((cpu::loop_of<double>(op) != nullptr) == is_elementwise(op), to_string(op));
    BOOST_TEST((!cpu_fusion()[static_cast<std::size_t>(op)].is_epilogue || is_elementwise(op)),
               to_string(op));
  }
}

// If a device cannot fuse operations, its plan has more steps. The results are the same, bit for
// bit.
BOOST_AUTO_TEST_CASE(fusing_changes_no_results) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 2, 6, 6});
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto w = g.variable("w", {4, 2, 3, 3}, initializer::he_uniform());
  const auto image = tanh(add_channel_bias(conv2d(x, w, {3, 3}), g.variable("b", {4})));
  const auto pooled = reshape(max_pool(image, {2, 2, 2, 2}), {shape::batch, 16});
  const auto hidden = dense_layer(pooled, "hidden", 7, activation::relu);
  const auto logits = dense_layer(dense_layer(hidden, "more", 7, activation::sigmoid), "logits", 3);
  auto options = cpu_plan_options();
  options.loss = softmax_cross_entropy(logits, labels);
  options.gradients = true;
  const auto fused = std::make_shared<const plan>(g, options);
  options.fusion = nullptr;
  const auto plain = std::make_shared<const plan>(g, options);
  // Without fusing, there are four more steps for biases, three for activations and three for
  // derivatives.
  BOOST_TEST(plain->instructions().size() == fused->instructions().size() + 10);

  const auto given = random_leaves(g, 5, 3);
  const auto gradient = [&](std::shared_ptr<const plan> what) {
    std::vector<std::vector<float>> tensors;
    std::vector<const float*> weights;
    for (const auto& each : given.weights)
      tensors.emplace_back(each.begin(), each.end());
    for (const auto& each : tensors)
      weights.push_back(each.data());
    const std::vector<float> pixels(given.feeds[0].begin(), given.feeds[0].end());
    const std::vector<std::int32_t> classes(given.feeds[1].begin(), given.feeds[1].end());
    const std::vector<feed<float>> feeds{pixels.data(), classes.data()};
    std::vector<float> result(g.parameters().size());
    run_arguments<float> arguments;
    arguments.rows = given.rows;
    arguments.weights = weights;
    arguments.feeds = feeds;
    arguments.gradient = result;
    executor<float>(std::move(what)).run(arguments);
    return result;
  };
  BOOST_TEST(same_bits(gradient(plain), gradient(fused)));
}

BOOST_AUTO_TEST_SUITE_END()
