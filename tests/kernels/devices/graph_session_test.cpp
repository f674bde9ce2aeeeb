#include "kernels/devices/graph_session.hpp"

#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"
#include "kernels/graph/sparse_operations.hpp"
#include "tests/support/input_errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

BOOST_AUTO_TEST_SUITE(graph_session)

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<double> features{1, 2, 3, -1, 0.5, 0.25};

struct small_graph {
  graph g;
  expression x = g.placeholder("x", {shape::batch, 3});
  expression t = g.placeholder("t", {shape::batch, 2});
  expression w = g.variable("w", {2, 3}, initializer::glorot_uniform());
  expression y = dense(x, w);
  expression loss = mean_squared_error(y, t);
};

} // namespace

BOOST_AUTO_TEST_CASE(parts_of_a_graph) {
  small_graph m;
  troupe::graph_session<double> s(m.g);
  const auto w = s.variable("w");
  for (std::size_t i = 0; i < 6; ++i)
    w[i] = static_cast<double>(i);
  // Only the feeds that a fetch needs must be passed: y does not need the targets, and w needs no
  // feed.
  BOOST_TEST((s.run({{m.x, features}}, {m.y})[0] == std::vector<double>{8, 26, 1, 0.25}),
             boost::test_tools::per_element());
  const auto both = s.run({{m.x, features}}, {m.y, m.w});
  BOOST_TEST(both[1].size() == 6u);
  BOOST_TEST(both[1][5] == 5);
  BOOST_TEST(s.run({}, {m.w})[0].size() == 6u);
  const std::vector<double> targets{8, 24, 1, 0.25};
  BOOST_TEST(s.run({{m.x, features}, {m.t, targets}}, {m.loss})[0][0] == 2);
}

BOOST_AUTO_TEST_CASE(plans_are_kept) {
  small_graph m;
  troupe::graph_session<double> s(m.g);
  for (int i = 0; i < 3; ++i)
    s.run({{m.x, features}}, {m.y});
  BOOST_TEST(s.planned() == 1u);
  s.run({{m.x, std::span{features}.first(3)}}, {m.y});
  BOOST_TEST(s.planned() == 1u); // fewer samples need no new plan
  s.run({{m.x, features}}, {m.y, m.x});
  BOOST_TEST(s.planned() == 2u);
  s.run({{m.x, std::vector<double>(30)}}, {m.y});
  BOOST_TEST(s.planned() == 3u); // more samples need a new plan
  s.run({{m.x, features}}, {m.y});
  BOOST_TEST(s.planned() == 3u);
}

BOOST_AUTO_TEST_CASE(graphs_grow_meanwhile) {
  small_graph m;
  troupe::graph_session<double> s(m.g);
  const auto before = s.run({{m.x, features}}, {m.y})[0];
  const auto first = s.variable("w")[0];
  const auto z = dense_layer(m.y, "more", 1);
  BOOST_TEST(s.run({{m.x, features}}, {z})[0].size() == 2u);
  BOOST_TEST(s.variable("w")[0] == first);
  BOOST_TEST(s.variable("more.weight").size() == 2u);
  BOOST_TEST(s.run({{m.x, features}}, {m.y})[0] == before, boost::test_tools::per_element());
}

// f = sum of tanh(x)^2. Its gradient is an ordinary part of the graph, so functions of this
// gradient can be differentiated, too.
BOOST_AUTO_TEST_CASE(gradients_of_gradients) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 3});
  const auto y = tanh(x);
  const auto slope = gradients(sum(y * y), std::array{x})[0];
  const auto curvature = gradients(sum(slope), std::array{x})[0];
  troupe::graph_session<double> s(g);
  const auto values = s.run({{x, features}}, {slope, curvature});
  for (std::size_t i = 0; i < features.size(); ++i) {
    const auto t = std::tanh(features[i]);
    const auto d = 1 - t * t;
    BOOST_TEST(std::abs(values[0][i] - 2 * t * d) < 1e-12);
    BOOST_TEST(std::abs(values[1][i] - 2 * (d * d - 2 * t * t * d)) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(whole_numbers) {
  graph g;
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto y = scale(to_float(labels, {shape::batch}), 2);
  troupe::graph_session<float> s(g);
  const std::vector<std::int32_t> fed{3, -4};
  BOOST_TEST((s.run({{labels, fed}}, {y})[0] == std::vector<float>{6, -8}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(sparse_rows_of_features) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 3}, dtype::sparse);
  const auto t = g.placeholder("t", {shape::batch, 2});
  const auto y = sparse_matmul(x, g.variable("w", {3, 2}));
  troupe::graph_session<double> s(g);
  const std::vector<double> w{1, 2, 3, 4, 5, 6};
  std::ranges::copy(w, s.variable("w").begin());
  const std::vector<std::int32_t> starts{0, 2, 2};
  const std::vector<std::int32_t> columns{0, 2};
  const std::vector<double> values{10, 1};
  const sparse_rows<double> rows{starts.data(), columns.data(), values.data()};
  BOOST_TEST((s.run({{x, rows, 2}}, {y})[0] == std::vector<double>{15, 26, 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(contains(error_of([&] {
                        s.run({{x, rows, 2}, {t, features}}, {y + t});
                      }),
                      "another feed has 2 samples"));
  BOOST_TEST(contains(error_of([&] {
                        s.run({{x, features}}, {y});
                      }),
                      "\"x\" (batch, 3) is sparse; feed it with sparse_rows"));
  BOOST_TEST(contains(error_of([&] {
                        s.run({{t, rows, 2}}, {t});
                      }),
                      "\"t\" (batch, 2) is not sparse, but was fed with sparse_rows"));
}

BOOST_AUTO_TEST_CASE(errors) {
  small_graph m;
  small_graph other;
  troupe::graph_session<double> s(m.g);
  const std::vector<double> four(4);
  const std::vector<double> six(6);
  BOOST_TEST(contains(error_of([&] { s.run({}, {m.y}); }), "depend on \"x\", which was not fed"));
  BOOST_TEST(
    contains(error_of([&] {
               s.run({{m.x, four}}, {m.y});
             }),
             "\"x\" (batch, 3) was fed with 4 elements of type float; expected a multiple of 3"));
  BOOST_TEST(contains(error_of([&] {
                        s.run({{m.x, six}, {m.t, six}}, {m.loss});
                      }),
                      "another feed has 2 samples"));
  BOOST_TEST(contains(error_of([&] { s.run({{m.y, six}}, {m.y}); }), "not for a placeholder"));
  BOOST_TEST(contains(error_of([&] {
                        s.run({{m.x, six}}, {other.y});
                      }),
                      "does not belong to this graph"));
  BOOST_TEST(contains(error_of([&] { s.variable("v"); }), "no variable named \"v\""));
}

BOOST_AUTO_TEST_CASE(fetches_that_are_no_numbers) {
  graph g;
  const auto labels = g.placeholder("labels", {shape::batch}, dtype::int32);
  const auto rows = g.placeholder("rows", {shape::batch, 9}, dtype::sparse);
  troupe::graph_session<float> s(g);
  const std::vector<std::int32_t> fed{3, -4};
  BOOST_TEST(contains(error_of([&] {
                        s.run({{labels, fed}}, {labels});
                      }),
                      "the fetch \"labels\" (batch) is int32; only floating-point numbers can be "
                      "fetched (to_float makes them of int32)"));
  BOOST_TEST(contains(error_of([&] {
                        s.run({{labels, fed}}, {rows});
                      }),
                      "\"rows\" (batch, 9) is sparse"));
}

// A dropout mask differs from run to run. Sessions with the same seed have the same masks in the
// same order.
BOOST_AUTO_TEST_CASE(masks_of_dropout) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 64});
  const auto y = dropout(x, 0.5, "drop");
  const auto slopes = gradients(sum(y), std::array{x});
  const std::vector<float> ones(64, 1);
  const auto masks = [&](std::uint64_t seed) {
    troupe::graph_session<float> s(g, seed);
    std::vector<std::vector<float>> result;
    for (int i = 0; i < 4; ++i) {
      const auto found = s.run({{x, ones}}, {y, slopes[0]});
      // In a single run, both fetches have the same mask.
      BOOST_TEST(found[0] == found[1], boost::test_tools::per_element());
      result.push_back(found[0]);
    }
    return result;
  };
  const auto first = masks(7);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < i; ++j)
      BOOST_TEST((first[i] != first[j]));
  BOOST_TEST((first == masks(7)));
  BOOST_TEST((first != masks(8)));
}

// Refuses sizes whose product exceeds 64 bits, or which need more memory than any machine has.
BOOST_AUTO_TEST_CASE(sizes_without_sense) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch});
  const auto wide = broadcast_last(x, {shape::batch, std::int64_t{1} << 47});
  const std::vector<float> rows(1 << 18);
  troupe::graph_session<float> s(g);
  BOOST_TEST(contains(error_of([&] {
                        s.run({{x, rows}}, {wide});
                      }),
                      "(batch, 140737488355328) for up to 262144 rows has 140737488355328 x 262144 "
                      "elements; at most 1099511627776 are accepted"));
  std::vector<expression> many;
  for (int i = 0; i < 3; ++i)
    many.push_back(offset(broadcast_last(x, {shape::batch, (std::int64_t{1} << 38) + i}), i));
  const std::vector<session_feed<float>> fed{{x, std::span{rows}.first(2)}};
  BOOST_TEST(contains(error_of([&] { s.run(fed, many); }),
                      "the values of a run take more than 1099511627776 elements"));
  BOOST_TEST(
    contains(error_of([&] { s.run(fed, std::span{many}.first(1)); }),
             "a run of up to 2 rows needs 2199023255552 bytes for its values; this machine has "));
}

BOOST_AUTO_TEST_SUITE_END()
