// ONNX's operators that take parts of tensors, or repeat them, compared with plain loops.

#include "tests/actors/model/onnx/single_node.hpp"
#include "tests/actors/model/onnx/small_model.hpp"

#include <numeric>

BOOST_AUTO_TEST_SUITE(onnx_parts)

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto whole = onnx::TensorProto::INT32;

numbers counted(std::size_t n) {
  numbers result(n);
  std::iota(result.begin(), result.end(), 1);
  return result;
}

/// The outputs y of a model of nodes, for two samples x (2, 4) with the elements 1 to 8.
numbers outputs_of(const small_model& m) {
  const auto model = m.parsed();
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto y = import_onnx(model, g, {x}).at(0).x;
  graph_session<double> s{g};
  std::ranges::copy(model.values(g.parameters()), s.variables().begin());
  const auto features = counted(8);
  const std::vector<session_feed<double>> feeds{
    session_feed<double>{x, std::span<const double>{features}}};
  const auto found = s.run(feeds, std::array{y})[0];
  return {found.begin(), found.end()};
}

} // namespace

// Compares slices of (2, 7, 3) and (batch, 7, 3) along the second axis, and their gradients, with
// NumPy's rule.
BOOST_AUTO_TEST_CASE(slices_with_steps) {
  constexpr int extent = 7;
  const auto x = counted(42);
  for (const int step : {1, 2, 3, 5, 9, -1, -2, -3, -9})
    for (int begin = 0; begin < extent; ++begin)
      for (const int end : {step < 0 ? -100 : 100, step < 0 ? 1 : 5}) {
        numbers expected;
        numbers slopes(x.size(), 0);
        for (std::size_t row = 0; row < 2; ++row)
          for (int i = begin; step > 0 ? i < std::min(end, extent) : i > std::max(end, -1);
               i += step)
            for (std::size_t k = 0; k < 3; ++k) {
              const auto from = (row * extent + static_cast<std::size_t>(i)) * 3 + k;
              expected.push_back(x[from]);
              slopes[from] = 1;
            }
        if (expected.empty())
          continue;
        for (const auto rows : {std::int64_t{2}, shape::batch}) {
          const auto found = single_node{"Slice"}
                               .feed("x", {rows, extent, 3})
                               .constant({double(begin)}, {1}, whole)
                               .constant({double(end)}, {1}, whole)
                               .constant({1}, {1}, whole)
                               .constant({double(step)}, {1}, whole)
                               .run<double>({x});
          const auto what =
            std::to_string(begin) + ":" + std::to_string(end) + ":" + std::to_string(step);
          compare(what, {}, found[0], expected);
          compare(what + ", slopes", {}, found[1], slopes);
        }
      }
}

BOOST_AUTO_TEST_CASE(parts_at_positions) {
  const auto x = counted(24); // (2, 3, 4)
  const auto single = [&](const numbers& positions, const std::vector<std::int64_t>& dims) {
    return single_node{"GatherND"}
      .feed("x", {2, 3, 4})
      .constant(positions, dims, whole)
      .run<double>({x});
  };
  compare("rows", {}, single({1, 2, 0, -1}, {2, 2})[0], {21, 22, 23, 24, 9, 10, 11, 12});
  compare("elements", {}, single({1, 0, 3, 1, 0, 3, 0, 2, 1}, {3, 3})[0], {16, 16, 10});
  compare("matrices", {}, single({-1}, {1, 1})[0], numbers(x.begin() + 12, x.end()));
  const auto slopes = single({1, 0, 3, 1, 0, 3, 0, 2, 1}, {3, 3})[1];
  BOOST_TEST(slopes[15] == 2);
  BOOST_TEST(slopes[9] == 1);
  BOOST_TEST(std::accumulate(slopes.begin(), slopes.end(), 0.0) == 3);
  BOOST_TEST(contains(error_of([&] {
                        single({0, 3}, {1, 2});
                      }),
                      "index 3 is out of range: dimension 1 has 3 elements"));
  small_model m;
  m.whole("positions", {1, 1}, {0});
  m.node("GatherND", {"x", "positions"}, "y");
  BOOST_TEST(contains(m.error(), "the positions select samples of the batch"));
}

// PyTorch writes x[:, [2, 0, 1]] in this form.
BOOST_AUTO_TEST_CASE(columns_at_positions) {
  small_model m;
  m.whole("positions", {3, 1}, {2, 0, 1});
  m.node("Transpose", {"x"}, "turned");
  m.node("GatherND", {"turned", "positions"}, "columns");
  m.node("Transpose", {"columns"}, "y");
  compare("columns", {}, outputs_of(m), {3, 1, 2, 7, 5, 6});
}

// More separate positions than the graph joins one by one.
BOOST_AUTO_TEST_CASE(many_positions) {
  constexpr std::size_t n = 200;
  const auto x = counted(2 * n);
  numbers positions;
  for (std::size_t i = 0; i < n; ++i)
    positions.push_back(static_cast<double>(i * 77 % n / 2));
  numbers expected;
  numbers slopes(2 * n, 0);
  for (std::size_t row = 0; row < 2; ++row)
    for (const auto position : positions) {
      const auto from = row * n + static_cast<std::size_t>(position);
      expected.push_back(x[from]);
      ++slopes[from];
    }
  const auto found = single_node{"Gather"}
                       .feed("x", {shape::batch, n})
                       .constant(positions, {n}, whole)
                       .integer("axis", 1)
                       .run<double>({x});
  compare("parts", {}, found[0], expected);
  compare("slopes", {}, found[1], slopes);
}

// A token that is repeated for each sample, as in vision transformers.
BOOST_AUTO_TEST_CASE(repeats_for_each_sample) {
  small_model m;
  m.weight("token", {1, 2}, 2);
  m.whole("0", {1}, {0});
  m.whole("2", {1}, {2});
  m.node("Shape", {"x"}, "sizes");
  m.node("Gather", {"sizes", "0"}, "samples");
  integer(m.node("Concat", {"samples", "2"}, "repeats"), "axis", 0);
  m.node("Tile", {"token", "repeats"}, "tokens");
  integer(m.node("Concat", {"tokens", "x"}, "y"), "axis", 1);
  compare("tokens", {}, outputs_of(m), {1, 1, 1, 1, 1, 2, 3, 4, 1, 1, 1, 1, 5, 6, 7, 8});
  small_model rows;
  rows.weight("token", {2, 4}, 8);
  rows.whole("0", {1}, {0});
  rows.whole("1", {1}, {1});
  rows.node("Shape", {"x"}, "sizes");
  rows.node("Gather", {"sizes", "0"}, "samples");
  integer(rows.node("Concat", {"samples", "1"}, "repeats"), "axis", 0);
  rows.node("Tile", {"token", "repeats"}, "y");
  BOOST_TEST(contains(rows.error(),
                      "dimension 0 of (2, 4) is repeated for each sample; expected a "
                      "dimension of 1, and no batch"));
}

// PyTorch writes the initial states of nn.RNN in this form: zeros (1, batch, 3).
BOOST_AUTO_TEST_CASE(constants_for_each_sample) {
  small_model m;
  m.weight("w", {3, 4}, 12);
  m.weight("b", {4}, 4);
  m.whole("0", {1}, {0});
  m.whole("1", {1}, {1});
  m.whole("3", {1}, {3});
  m.whole("first", {}, {0});
  m.node("Shape", {"x"}, "sizes");
  m.node("Gather", {"sizes", "0"}, "samples");
  integer(m.node("Concat", {"1", "samples", "3"}, "extents"), "axis", 0);
  m.node("ConstantOfShape", {"extents"}, "zeros");
  m.node("MatMul", {"zeros", "w"}, "product");
  m.node("Add", {"product", "b"}, "sum");
  m.node("Gather", {"sum", "first"}, "state");
  m.node("Add", {"state", "x"}, "y");
  compare("states", {}, outputs_of(m), {2, 3, 4, 5, 6, 7, 8, 9});
}

BOOST_AUTO_TEST_SUITE_END()
