#include "kernels/graph/operations.hpp"
#include "tests/kernels/numeric.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <string>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(random_graphs)

namespace {

/// Builds a graph of tensors (batch, 4) with random operations on earlier tensors. Some tensors are
/// read twice, late or never, and by fused and in-place operations.
struct random_graph {
  graph g;
  std::vector<expression> tensors;
  expression labels;
  random_stream stream;

  explicit random_graph(std::uint64_t number) : stream(seed(), {number}) {
    tensors.push_back(g.placeholder("x", {shape::batch, 4}));
    labels = g.placeholder("labels", {shape::batch}, dtype::int32);
    for (int i = 0; i < 14; ++i)
      tensors.push_back(grow());
  }

  expression pick() { return tensors[stream.below(tensors.size())]; }

  expression weight() {
    // Sometimes, this is a parameter that was used before.
    const auto i = stream.below(6);
    const auto name = std::string("w").append(std::to_string(i));
    if (g.parameters().find(name) != nullptr)
      return g.find(name);
    return g.variable(name, {4, 4});
  }

  expression grow() {
    const auto x = tensors.back();
    switch (stream.below(16)) {
    case 13:
      return maximum(tanh(x), scale(pick(), 0.5));
    case 14:
      return at_most(minimum(x, pick()), 0.75);
    case 15:
      return select(at_least(pick(), -0.5), tanh(x), pick());
    case 10:
      return gelu(scale(x, 0.3)) + tanh(pick() * pick());
    case 11:
      return tanh(leaky_relu(x) / offset(absolute(pick()), 1));
    case 12:
      return offset(softplus(x - pick()), -0.5);
    case 0:
      return tanh(x + pick());
    case 1:
      return scale(x - pick(), 0.5);
    case 2:
      return tanh(x) * sigmoid(pick());
    case 3:
      return tanh(x);
    case 4:
      return softmax(pick());
    case 5:
      return scale(softmax_cross_entropy_gradient(pick(), labels), 2);
    case 6:
      return broadcast_last(sum_last(tanh(pick())), {shape::batch, 4});
    case 7:
      return tanh(add_bias(dense(x, weight()), sum_leading(weight())));
    case 8:
      return sigmoid(dense(pick(), weight()));
    default:
      return tanh(dense(x, weight()));
    }
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(plans_of_random_graphs_are_right) {
  for (std::uint64_t number = 0; number < 150; ++number) {
    random_graph r(number);
    auto loss = softmax_cross_entropy(r.tensors.back(), r.labels) + sum(r.pick() * r.pick());
    auto correct = softmax_correct(r.pick(), r.labels);
    const std::vector<expression> fetches{r.pick(), r.pick(), r.tensors[0]};
    for (std::size_t rows : {1, 5}) {
      auto values = random_leaves(r.g, rows);
      const auto what = "graph " + std::to_string(number);
      const auto actual = execute<double>(r.g, values, loss, fetches, true, correct);
      check_close(std::vector{actual.loss}, reference_value(r.g, loss.id(), values), 1e-11, 1e-11,
                  what + ", loss");
      BOOST_TEST(static_cast<double>(actual.correct)
                 == reference_value(r.g, correct.id(), values)[0]);
      for (std::size_t i = 0; i < fetches.size(); ++i)
        check_close(actual.fetches[i], reference_value(r.g, fetches[i].id(), values), 1e-11, 1e-11,
                    what + ", fetch " + std::to_string(i));
      std::vector<double> expected;
      double largest = 1;
      for (auto& weights : values.weights)
        for (double x : central_differences(
               [&] { return reference_value(r.g, loss.id(), values)[0]; }, weights)) {
          expected.push_back(x);
          largest = std::max(largest, std::abs(x));
        }
      check_close(actual.gradient, expected, 1e-6, 1e-8 * largest, what + ", gradient");
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
