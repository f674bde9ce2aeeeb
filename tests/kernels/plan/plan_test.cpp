#include "kernels/plan/plan.hpp"

#include "kernels/cpu/executor.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/operations.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

struct mlp {
  graph g;
  expression x = g.placeholder("x", {shape::batch, 784});
  expression labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  expression h1 = dense_layer(x, "dense_1", 256, activation::relu);
  expression h2 = dense_layer(h1, "dense_2", 128, activation::relu);
  expression logits = dense_layer(h2, "dense_3", 10);
  expression loss = softmax_cross_entropy(logits, labels);
  expression correct = softmax_correct(logits, labels);

  plan_options options() {
    auto result = cpu_plan_options();
    result.loss = loss;
    result.gradients = true;
    result.bucket_bytes = 2048;
    return result;
  }
};

} // namespace

BOOST_AUTO_TEST_SUITE(plan)

BOOST_AUTO_TEST_CASE(an_mlp_is_fused) {
  mlp m;
  auto options = m.options();
  options.correct = m.correct;
  const troupe::plan p(m.g, options);
  // 4 + 6 + 2 steps: the forward pass has 3 dense layers, and the loss with its gradient. The
  // backward pass has gradients of the weights and of the bias for 3 layers, and for 2 layers the
  // gradient of the input, fused with the derivative of relu.
  BOOST_TEST(p.instructions().size() == 4U + 6U + 2U);
  const auto& first = p.instructions()[0];
  BOOST_TEST((first.op == operation::matmul && first.after == operation::relu));
  BOOST_TEST(first.bias.name == "dense_1.bias");
  const auto& loss = p.instructions()[3];
  BOOST_TEST((loss.gradient.exists() && loss.correct.exists()));
  BOOST_TEST(loss.gradient.index == loss.inputs[0].index); // the gradient overwrites the logits
  const auto& last = p.instructions().back();
  BOOST_TEST((last.output.where == operand::place::gradient && last.output.index == 0));
  // The arena (the memory of all results) has the activations, the gradients of two activations,
  // and some scalars.
  BOOST_TEST(p.arena_elements() <= 64U * (256 + 128 + 16 + 256 + 128) + 64);
  BOOST_TEST(p.to_string().find("bucket 2 ready: elements 0 to 200960") != std::string::npos);
}

// On a device that can add a matrix to a product, the product may be on either side of the sum. The
// sum of two products is fused with one of them.
BOOST_AUTO_TEST_CASE(sums_are_fused_with_products) {
  auto table = cpu_fusion();
  table[static_cast<std::size_t>(operation::add)].is_epilogue = true;
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<float> a{1, -2, 3, 4};
  const std::vector<float> b{2, 1, -1, 0};
  const float* const weights[] = {a.data(), b.data()};
  const feed<float> feeds[] = {{values.data()}};
  using maker = expression (*)(expression x, expression p, expression q);
  const auto results = [&](const fusion_table& fusion, maker make) {
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 2});
    const auto w = g.variable("w", {2, 2});
    const auto v = g.variable("v", {2, 2});
    plan_options options;
    options.fusion = &fusion;
    options.fetches = {make(x, matmul(x, w), matmul(x, v))};
    const auto what = std::make_shared<const troupe::plan>(g, options);
    executor<float> run(what);
    run_arguments<float> how;
    how.rows = 3;
    how.weights = weights;
    how.feeds = feeds;
    run.run(how);
    const auto found = run.fetched(0);
    return std::pair{std::vector<float>(found.begin(), found.end()), what->instructions().size()};
  };
  const std::pair<maker, std::size_t> cases[] = {
    {[](expression x, expression p, expression) { return p + x; }, 1},
    {[](expression x, expression p, expression) { return x + p; }, 1},
    {[](expression, expression p, expression q) { return p + q; }, 2},
    {[](expression, expression p, expression q) { return q + p; }, 2},
    {[](expression, expression p, expression) { return p + p; }, 2},
    {[](expression x, expression p, expression q) { return (x + p) + (q + x); }, 3},
  };
  for (const auto& [make, steps] : cases) {
    const auto [found, count] = results(table, make);
    BOOST_TEST(count == steps);
    BOOST_TEST(found == results(cpu_fusion(), make).first, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(element_wise_chains_are_one_step) {
  graph g;
  auto x = g.placeholder("x", {shape::batch, 8});
  auto y = g.placeholder("y", {shape::batch, 8});
  auto options = cpu_plan_options();
  options.fetches = {tanh((x + y) * sigmoid(x - y))};
  const troupe::plan p(g, options);
  BOOST_TEST(p.instructions().size() == 1U);
  BOOST_TEST(p.instructions()[0].temporaries <= 2U);
  BOOST_TEST(p.to_string().find("elementwise[add subtract sigmoid multiply tanh](x (batch, 8), y")
             != std::string::npos);
  // A value is not fused away if it is read twice, or after the run.
  auto z = x + y;
  options.fetches = {z * tanh(z), exp(z)};
  BOOST_TEST(troupe::plan(g, options).instructions().size() == 3U);
}

// A chain of up to 16 operations is fused into the step that reads it. A longer chain is not. A
// step can have one such chain for each of its operands.
BOOST_AUTO_TEST_CASE(element_wise_chains_end_at_a_length) {
  graph g;
  const auto chain = [&](const std::string& name, int length) {
    auto result = g.placeholder(name, {shape::batch, 8});
    for (int i = 0; i < length; ++i)
      result = tanh(result);
    return result;
  };
  const auto lengths = [&](const expression& y) {
    auto options = cpu_plan_options();
    options.fetches = {y};
    const troupe::plan p(g, options);
    std::vector<std::size_t> result;
    for (const auto& x : p.instructions())
      result.push_back(x.op == operation::elementwise ? x.program.size() : 1);
    return result;
  };
  using sizes = std::vector<std::size_t>;
  BOOST_TEST(lengths(tanh(select(chain("a", 16), chain("b", 16), chain("c", 16))))
               == (sizes{49, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(lengths(chain("d", 16) + chain("e", 17)) == (sizes{17, 17}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(buckets_are_whole_tensors_last_layers_first) {
  mlp m;
  for (std::size_t bytes : {1U, 2048U, 4096U, 200000U, 1U << 30}) {
    auto options = m.options();
    options.bucket_bytes = bytes;
    const troupe::plan p(m.g, options);
    auto end = p.parameters().size();
    std::size_t after = 0;
    for (const auto& bucket : p.buckets()) {
      BOOST_TEST(bucket.elements.end == end);
      BOOST_TEST((bucket.elements.size() * sizeof(float) >= bytes || bucket.elements.begin == 0));
      BOOST_TEST(
        std::ranges::count(p.parameters().entries(), bucket.elements.begin, &layout_entry::offset)
        == 1);
      BOOST_TEST(bucket.ready_after >= after);
      after = bucket.ready_after;
      end = bucket.elements.begin;
    }
    BOOST_TEST(end == 0U);
  }
  const troupe::plan p(m.g, m.options());
  BOOST_TEST(p.buckets().size() == 3U);
  BOOST_TEST(p.buckets()[0].ready_after < p.buckets()[1].ready_after);
  BOOST_TEST(p.buckets()[1].ready_after < p.buckets()[2].ready_after);
}

BOOST_AUTO_TEST_CASE(a_bucket_waits_for_the_last_reader_of_its_weights) {
  // The last layer has the same weights as the first one. So the gradient of these weights, and the
  // weights themselves, are in use until the first layer has been differentiated.
  graph g;
  auto x = g.placeholder("x", {shape::batch, 4});
  auto shared = g.variable("shared", {4, 4});
  auto h = relu(dense(x, shared));
  auto own = g.variable("own", {4, 4});
  h = relu(dense(h, own));
  auto options = cpu_plan_options();
  options.loss = sum(dense(h, shared));
  options.gradients = true;
  options.bucket_bytes = 1;
  const troupe::plan p(g, options);
  BOOST_REQUIRE(p.buckets().size() == 2U);
  BOOST_TEST(p.buckets()[1].ready_after == p.instructions().size() - 1);
  BOOST_TEST(p.buckets()[0].ready_after < p.buckets()[1].ready_after);
}

BOOST_AUTO_TEST_CASE(forward_only) {
  mlp m;
  auto options = cpu_plan_options();
  options.fetches = {m.logits};
  const troupe::plan p(m.g, options);
  BOOST_TEST(p.instructions().size() == 3U);
  BOOST_TEST(p.buckets().empty());
  BOOST_TEST(p.reads_feed(0));
  BOOST_TEST(!p.reads_feed(1));
  // While the logits are computed, h1 is no longer needed, so only two activations need memory.
  BOOST_TEST(p.arena_elements() == 64U * (256 + 128));
}

BOOST_AUTO_TEST_CASE(buffers_are_reused) {
  graph g;
  auto y = g.placeholder("x", {shape::batch, 64});
  for (int i = 0; i < 20; ++i)
    y = tanh(dense(y, g.variable(std::string("w").append(std::to_string(i)), {64, 64})));
  for (int i = 0; i < 20; ++i)
    y = sigmoid(y);
  auto options = cpu_plan_options();
  options.fetches = {y};
  BOOST_TEST(troupe::plan(g, options).arena_elements() == 2U * 64 * 64);
}

BOOST_AUTO_TEST_CASE(state_has_no_gradient) {
  graph g;
  auto x = g.placeholder("x", {shape::batch, 4});
  auto mean = g.variable("mean", {4}, initializer::zeros(), parameter_kind::state);
  auto w = g.variable("w", {4, 4});
  auto options = cpu_plan_options();
  options.loss = sum(dense(add_bias(x, mean), w));
  options.gradients = true;
  const troupe::plan p(g, options);
  BOOST_REQUIRE(p.zero_gradients().size() == 1U);
  BOOST_TEST((p.zero_gradients()[0] == range{0, 4}));
}

// Frozen weights have no gradient. Values that only such gradients would need are not computed.
BOOST_AUTO_TEST_CASE(frozen_parameters_have_no_gradient) {
  const auto plan_with = [](parameter_kind kind) {
    graph g;
    auto x = g.placeholder("x", {shape::batch, 4});
    auto hidden = tanh(dense(x, g.variable("first", {8, 4}, {}, kind)));
    auto options = cpu_plan_options();
    options.loss = sum(dense(hidden, g.variable("second", {2, 8})));
    options.gradients = true;
    return troupe::plan(g, options);
  };
  const auto all = plan_with(parameter_kind::trainable);
  const auto half = plan_with(parameter_kind::frozen);
  BOOST_TEST(all.zero_gradients().empty());
  BOOST_REQUIRE(half.zero_gradients().size() == 1U);
  BOOST_TEST((half.zero_gradients()[0] == range{0, 32}));
  BOOST_TEST(half.instructions().size() + 2 <= all.instructions().size());
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
  mlp m;
  mlp other;
  auto options = cpu_plan_options();
  options.gradients = true;
  BOOST_CHECK_THROW(troupe::plan(m.g, options), input_error);
  options.loss = m.logits;
  BOOST_CHECK_THROW(troupe::plan(m.g, options), input_error);
  options.loss = other.loss;
  BOOST_CHECK_THROW(troupe::plan(m.g, options), input_error);
  options.loss = m.loss;
  options.correct = m.loss;
  BOOST_CHECK_THROW(troupe::plan(m.g, options), input_error);
  options.correct = m.correct;
  options.max_rows = 0;
  BOOST_CHECK_THROW(troupe::plan(m.g, options), input_error);
}

BOOST_AUTO_TEST_SUITE_END()
