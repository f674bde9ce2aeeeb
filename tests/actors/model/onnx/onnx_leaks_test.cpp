// An element that is not selected has no effect, even if it is infinite or NaN. Differences of
// large numbers stay exact.

#include "tests/actors/model/onnx/single_node.hpp"

BOOST_AUTO_TEST_SUITE(onnx_leaks)

using namespace troupe;
using namespace troupe::test;

namespace {

/// All pairs of extreme numbers.
std::array<numbers, 2> pairs() {
  std::array<numbers, 2> result;
  for (const double x : extremes())
    for (const double y : extremes()) {
      result[0].push_back(x);
      result[1].push_back(y);
    }
  return result;
}

} // namespace

// A comparison gives 1 or 0. With NaN, it gives 0.
BOOST_AUTO_TEST_CASE(comparisons) {
  const std::vector<std::pair<std::string, bool (*)(double, double)>> all{
    {"Greater", [](double a, double b) { return a > b; }},
    {"Less", [](double a, double b) { return a < b; }},
    {"Equal", [](double a, double b) { return a == b; }},
    {"GreaterOrEqual", [](double a, double b) { return a >= b; }},
    {"LessOrEqual", [](double a, double b) { return a <= b; }}};
  const auto [a, b] = pairs();
  const auto n = static_cast<std::int64_t>(a.size());
  for (const auto& [op, f] : all) {
    numbers expected;
    for (std::size_t i = 0; i < a.size(); ++i)
      expected.push_back(f(a[i], b[i]) ? 1 : 0);
    for (const auto& dims : {extents{n}, extents{shape::batch, 1}}) {
      const auto found = single_node{op}.feed("x", dims).feed("y", dims).run<float>({a, b});
      compare(op, a, found[0], expected);
      compare(op + ", slopes", a, found[1], numbers(a.size(), 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(truth_of_numbers) {
  const auto x = extremes();
  numbers expected;
  for (const double value : x)
    expected.push_back(value != 0 ? 1 : 0); // also for NaN
  const auto n = static_cast<std::int64_t>(x.size());
  const auto found =
    single_node{"Cast"}.feed("x", {n}).integer("to", onnx::TensorProto::BOOL).run<float>({x});
  compare("Cast", x, found[0], expected);
}

// The branch that is not selected contains NaN, which must not reach the result.
BOOST_AUTO_TEST_CASE(where_of_a_comparison) {
  graph g;
  const auto x = g.placeholder("x", {4});
  onnx::ModelProto proto;
  proto.set_ir_version(8);
  proto.add_opset_import()->set_version(17);
  auto& model = *proto.mutable_graph();
  model.set_name("g");
  model.add_output()->set_name("output");
  auto& port = *model.add_input();
  port.set_name("x");
  auto& type = *port.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_value(4);
  const auto node = [&](const std::string& op, const std::vector<std::string>& inputs,
                        const std::string& output) {
    auto& added = *model.add_node();
    added.set_op_type(op);
    for (const auto& input : inputs)
      added.add_input(input);
    added.add_output(output);
  };
  node("Equal", {"x", "x"}, "is a number");
  node("Where", {"is a number", "x", "other"}, "output");
  auto& other = *model.add_initializer();
  other.set_name("other");
  other.set_data_type(onnx::TensorProto::FLOAT);
  other.add_float_data(0);
  const auto bytes = proto.SerializeAsString();
  const auto read = onnx_model::parse(std::as_bytes(std::span{bytes}), "model");
  const auto y = import_onnx(read, g, {x}).at(0).x;
  graph_session<float> session{g};
  const std::vector<float> values{1, static_cast<float>(not_a_number), -2,
                                  static_cast<float>(infinity)};
  const auto found =
    session.run(std::array{session_feed<float>{x, std::span<const float>{values}}}, std::array{y});
  compare("Where", {}, {found[0].begin(), found[0].end()}, {1, 0, -2, infinity});
}

BOOST_AUTO_TEST_CASE(resized_images) {
  // The image has two rows. An infinite or NaN pixel changes only the output pixels that are
  // computed from it.
  const auto resized = [](const std::string& mode, const std::string& place, const numbers& scales,
                          const numbers& x) {
    return single_node{"Resize", 19}
      .feed("x", {shape::batch, 1, 2, 4})
      .nothing()
      .constant(scales, {4})
      .text("mode", mode)
      .text("coordinate_transformation_mode", place)
      .run<double>({x});
  };
  for (const double bad : {infinity, -infinity, not_a_number}) {
    const numbers x{bad, 1, 2, 3, 4, 5, 6, 7};
    const auto wide = resized("linear", "half_pixel", {1, 1, 1, 2}, x);
    compare("linear", {}, wide[0],
            {bad, bad, bad, 1.25, 1.75, 2.25, 2.75, 3, 4, 4.25, 4.75, 5.25, 5.75, 6.25, 6.75, 7});
    compare("linear, slopes", {}, wide[1], numbers(8, 2));
    const auto aligned = resized("linear", "align_corners", {1, 1, 1, 1.75}, x);
    compare("corners", {}, aligned[0], {bad, bad, 1, 1.5, 2, 2.5, 3, 4, 4.5, 5, 5.5, 6, 6.5, 7});
    const auto nearest = resized("nearest", "half_pixel", {1, 1, 1, 0.5}, x);
    compare("nearest", {}, nearest[0], {bad, 2, 4, 6});
    const auto cubic = resized("cubic", "half_pixel", {1, 1, 1, 2}, x);
    for (std::size_t i = 0; i < 16; ++i)
      BOOST_TEST(std::isfinite(cubic[0][i]) == (i >= 5), "cubic " << i << ": " << cubic[0][i]);
    const auto high = resized("linear", "half_pixel", {1, 1, 2, 1}, x);
    for (std::size_t i = 0; i < 16; ++i)
      BOOST_TEST(std::isfinite(high[0][i]) == (i != 0 && i != 4 && i != 8),
                 "high " << i << ": " << high[0][i]);
  }
  // Gradients are compared with central differences.
  const numbers usual{0.5, -1, 2, 3, 4, 0.25, -6, 7};
  for (const auto* mode : {"linear", "cubic"}) {
    const numbers scales{1, 1, 1.5, 2.25};
    const auto slopes = resized(mode, "half_pixel", scales, usual)[1];
    for (std::size_t i = 0; i < usual.size(); ++i) {
      auto more = usual;
      more[i] += 1;
      double change = 0;
      const auto before = resized(mode, "half_pixel", scales, usual)[0];
      const auto behind = resized(mode, "half_pixel", scales, more)[0];
      for (std::size_t k = 0; k < before.size(); ++k)
        change += behind[k] - before[k];
      BOOST_TEST(std::abs(slopes[i] - change) < 1e-9, mode << " " << i);
    }
  }
}

// The number of pixels is rounded down after a product in float: 0.7 times 10 pixels are 7.
BOOST_AUTO_TEST_CASE(sizes_of_resized_images) {
  for (const auto& [scale, width] : {std::pair{0.7, 7}, {0.75, 7}, {0.69, 6}, {1.4, 14}}) {
    const auto found = single_node{"Resize", 19}
                         .feed("x", {shape::batch, 1, 1, 10})
                         .nothing()
                         .constant({1, 1, 1, scale}, {4})
                         .text("mode", "nearest")
                         .run<double>({numbers(10, 1)});
    compare("Resize", {}, found[0], numbers(static_cast<std::size_t>(width), 1));
  }
}

BOOST_AUTO_TEST_CASE(slopes_of_prelu) {
  const auto [x, slope] = pairs();
  const auto n = static_cast<std::int64_t>(x.size());
  numbers expected;
  numbers by_x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool below = x[i] < 0;
    expected.push_back(below ? double{static_cast<float>(x[i] * slope[i])} : x[i]);
    by_x.push_back(below ? slope[i] : 1);
  }
  const auto found = single_node{"PRelu"}.feed("x", {n}).feed("slope", {n}).run<float>({x, slope});
  compare("PRelu", x, found[0], expected);
  compare("PRelu, by x", x, found[1], by_x);
}

BOOST_AUTO_TEST_CASE(tests_for_nan) {
  const numbers x{0, 1, not_a_number, infinity, -infinity, -2};
  for (const auto rows : {std::int64_t{6}, shape::batch}) {
    const auto found = single_node{"IsNaN"}.feed("x", {rows}).run<float>({x});
    compare("IsNaN", x, found[0], {0, 0, 1, 0, 0, 0});
    compare("IsNaN, slopes", x, found[1], numbers(6, 0));
  }
}

// At 0, both pieces of these functions have a slope. PyTorch takes the slope of the exponential.
BOOST_AUTO_TEST_CASE(slopes_at_0) {
  const auto slope = [](single_node node) { return node.feed("x", {1}).run<double>({{0}})[1]; };
  compare("Elu", {}, slope(single_node{"Elu"}.real("alpha", 0.5)), {0.5});
  compare("Selu", {}, slope(single_node{"Selu"}), {1.67326319217681884 * 1.05070102214813232});
  compare("Celu", {}, slope(single_node{"Celu"}.real("alpha", 0.5)), {1});
}

BOOST_AUTO_TEST_CASE(powers_of_real_numbers) {
  for (const double exponent : {0.25, 1.5, 2.3, 15.75, -0.3, -2.5})
    check_unary(
      "Pow " + std::to_string(exponent),
      [&](const extents& dims) {
        return single_node{"Pow"}.feed("x", dims).constant({exponent}, {});
      },
      [&](double x) { return std::pow(x, double{static_cast<float>(exponent)}); },
      {0, 1e-30, 1e-9, 0.02, 0.3, 1, 2.5, 7, 100, 1e6, 1e18, 1e30, infinity, not_a_number, -1},
      3e-5);
  // At 0, where the logarithm has no slope.
  const auto found = single_node{"Pow"}.feed("x", {2}).constant({1.5}, {}).run<float>({{0, 4}});
  compare("slopes at 0", {}, found[1], {0, 3});
}

BOOST_AUTO_TEST_CASE(cumulative_sums) {
  const auto sums = [](const numbers& x, const extents& dims, int exclusive, int backwards) {
    return single_node{"CumSum"}
      .feed("x", dims)
      .constant({1}, {}, onnx::TensorProto::INT32)
      .integer("exclusive", exclusive)
      .integer("reverse", backwards)
      .run<double>({x});
  };
  const numbers x{1, 2, 3, 4, 5, 60, 70, 80, 90, 100};
  for (const auto rows : {std::int64_t{2}, shape::batch}) {
    compare("sums", {}, sums(x, {rows, 5}, 0, 0)[0], {1, 3, 6, 10, 15, 60, 130, 210, 300, 400});
    compare("of the elements before", {}, sums(x, {rows, 5}, 1, 0)[0],
            {0, 1, 3, 6, 10, 0, 60, 130, 210, 300});
    compare("backwards", {}, sums(x, {rows, 5}, 0, 1)[0],
            {15, 14, 12, 9, 5, 400, 340, 270, 190, 100});
    compare("of the elements behind", {}, sums(x, {rows, 5}, 1, 1)[0],
            {14, 12, 9, 5, 0, 340, 270, 190, 100, 0});
    compare("slopes", {}, sums(x, {rows, 5}, 0, 0)[1], {5, 4, 3, 2, 1, 5, 4, 3, 2, 1});
    compare("single elements", {}, sums({3, 4}, {rows, 1}, 1, 0)[0], {0, 0});
  }
  // Infinity does not change the sums before it.
  compare("infinity", {}, sums({1, 2, infinity, 4}, {1, 4}, 0, 0)[0], {1, 3, infinity, infinity});
}

BOOST_AUTO_TEST_CASE(negative_powers) {
  for (const double exponent : {-1.0, -2.0, -3.0, -7.0, -16.0, -0.5}) {
    const auto power = [&](const numbers& x) {
      return single_node{"Pow"}
        .feed("x", {static_cast<std::int64_t>(x.size())})
        .constant({exponent}, {})
        .run<float>({x});
    };
    const numbers x{1e-2, 0.3, 1, 2.5, 7, 100, 65504, 1e6, 1e18, 1e30, 3e38, infinity};
    numbers expected;
    numbers slopes;
    for (const double z : x) {
      const double value = double{static_cast<float>(z)};
      const auto small = [](double y) { return std::abs(y) < 1.2e-38 ? 0 : y; };
      expected.push_back(small(std::pow(value, exponent)));
      slopes.push_back(small(exponent * std::pow(value, exponent - 1)));
    }
    const auto found = power(x);
    compare("Pow", x, found[0], expected, 1e-5);
    compare("Pow, slopes", x, found[1], slopes, 1e-5);
  }
}

// Normalizes numbers whose mean is much larger than their deviation. onnxruntime 1.23 computes x *
// factor + (bias - mean * factor), which loses digits of x - mean.
BOOST_AUTO_TEST_CASE(normalization_of_large_means) {
  const numbers x{1e6 + 0.5, -3e5, 1e6 - 2.25, -3e5 + 1.5, 1e6, -3e5 - 0.75};
  const auto gain = double{0.3F};
  const auto other = double{0.7F};
  const numbers expected{gain + 0.25,      -1,   -4.5 * gain + 0.25,
                         0.75 * other - 1, 0.25, -0.375 * other - 1};
  for (const auto& dims : {extents{shape::batch, 2}, extents{3, 2}}) {
    const auto found = single_node{"BatchNormalization", 15}
                         .feed("x", dims)
                         .constant({gain, other}, {2})
                         .constant({0.25, -1}, {2})
                         .constant({1e6, -3e5}, {2})
                         .constant({0.25, 4}, {2})
                         .real("epsilon", 0)
                         .run<float>({x});
    compare("BatchNormalization", x, found[0], expected);
    compare("BatchNormalization, slopes", x, found[1],
            {2 * gain, other / 2, 2 * gain, other / 2, 2 * gain, other / 2});
  }
}

BOOST_AUTO_TEST_SUITE_END()
