// Tests ONNX's operators with very large and very small numbers, infinity and NaN. Results are
// compared with plain formulas in double, and gradients with central differences. For resized or
// pooled images, the values at the edges are from onnxruntime 1.32.

#include "tests/actors/model/onnx/single_node.hpp"

#include "kernels/error.hpp"

BOOST_AUTO_TEST_SUITE(onnx_extremes)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(clip) {
  const numbers limits{-infinity, -3e38, -1e30, -65504, -1, 0, 0.5, 6, 65504, 1e30, 3e38, infinity};
  for (const double low : limits)
    for (const double high : limits) {
      const auto from = double{static_cast<float>(low)};
      const auto to = double{static_cast<float>(high)};
      check_unary(
        "Clip(" + std::to_string(low) + ", " + std::to_string(high) + ")",
        [&](const extents& dims) {
          return single_node{"Clip"}.feed("x", dims).constant({low}, {}).constant({high}, {});
        },
        [&](double x) { return clipped(x, from, to); });
    }
  check_unary(
    "Clip without a lower limit",
    [](const extents& dims) {
      return single_node{"Clip"}.feed("x", dims).nothing().constant({2}, {});
    },
    [](double x) { return clipped(x, -infinity, 2); });
  check_unary(
    "Clip of version 6",
    [](const extents& dims) {
      return single_node{"Clip", 6}.feed("x", dims).real("min", 0).real("max", 6);
    },
    [](double x) { return clipped(x, 0, 6); });
  // The largest float as a limit means "no limit", so infinity is not clipped.
  const double largest = std::numeric_limits<float>::max();
  for (const auto& [low, high] : {std::pair{-largest, largest}, {-largest, 2.0}, {-2.0, largest}})
    check_unary(
      "Clip(" + std::to_string(low) + ", " + std::to_string(high) + ")",
      [low = low, high = high](const extents& dims) {
        return single_node{"Clip"}.feed("x", dims).constant({low}, {}).constant({high}, {});
      },
      [&, low = low, high = high](double x) {
        return clipped(x, low == -largest ? -infinity : low, high == largest ? infinity : high);
      });
}

BOOST_AUTO_TEST_CASE(minimum_and_maximum) {
  numbers a;
  numbers b;
  for (const double x : extremes())
    for (const double y : extremes()) {
      a.push_back(x);
      b.push_back(y);
    }
  const auto n = static_cast<std::int64_t>(a.size());
  for (const bool largest : {true, false}) {
    const std::string op = largest ? "Max" : "Min";
    const auto f = [&](double x, double y) {
      return std::isnan(x) || std::isnan(y) ? not_a_number
        : largest                           ? std::max(x, y)
                                            : std::min(x, y);
    };
    numbers expected;
    for (std::size_t i = 0; i < a.size(); ++i)
      expected.push_back(f(a[i], b[i]));
    compare(op, a, single_node{op}.feed("x", {n}).feed("y", {n}).run<float>({a, b})[0], expected);
    // The operands may have different shapes: here a matrix, a number and a row.
    const auto found = single_node{op}
                         .feed("x", {shape::batch, 2})
                         .constant({0.5}, {})
                         .constant({-1, 3}, {2})
                         .run<double>({{-2, 5, 0.7, 1, 4, 2}});
    const numbers wanted =
      largest ? numbers{0.5, 5, 0.7, 3, 4, 3} : numbers{-2, 0.5, -1, 0.5, -1, 0.5};
    const numbers slopes = largest ? numbers{0, 1, 1, 0, 1, 0} : numbers{1, 0, 0, 0, 0, 0};
    compare(op + " of three", {}, found[0], wanted);
    compare(op + " of three, slopes", {}, found[1], slopes);
  }
}

// An element that the mask does not select has no effect, even if it is infinite or NaN.
BOOST_AUTO_TEST_CASE(where) {
  const auto x = extremes();
  const auto n = static_cast<std::int64_t>(x.size());
  numbers mask;
  numbers others;
  numbers expected;
  numbers slopes;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mask.push_back(i % 2 == 0 ? 1 : 0);
    others.push_back(i % 4 < 2 ? not_a_number : infinity);
    expected.push_back(i % 2 == 0 ? x[i] : others[i]);
    slopes.push_back(i % 2 == 0 ? 1 : 0);
  }
  // The condition is the first input. It must be a constant.
  const auto make = [&](const extents& dims) {
    return single_node{"Where"}.constant(mask, dims, onnx::TensorProto::BOOL);
  };
  compare("Where of two feeds", x,
          make({n}).feed("x", {n}).feed("y", {n}).run<float>({x, others})[0], expected);
  const auto constant = make({n}).feed("x", {n}).constant(others, {n}).run<float>({x});
  compare("Where of a constant", x, constant[0], expected);
  compare("Where of a constant, slopes", x, constant[1], slopes);
  // A row of truth values that is the same for all samples, and one number: the usual mask of
  // attention.
  const auto masked = single_node{"Where"}
                        .constant({1, 0, 1}, {3}, onnx::TensorProto::BOOL)
                        .feed("x", {shape::batch, 3})
                        .constant({-infinity}, {})
                        .run<float>({{1, not_a_number, 3, infinity, infinity, -infinity}});
  compare("Where of a row", {}, masked[0], {1, -infinity, 3, infinity, -infinity, -infinity});
  // The other operands are broadcast to the shape of the condition, a matrix.
  const auto wide = single_node{"Where"}
                      .constant({1, 0, 0, 1}, {2, 2}, onnx::TensorProto::BOOL)
                      .feed("x", {2})
                      .constant({7}, {1})
                      .run<float>({{1, 2}});
  compare("Where of a matrix", {}, wide[0], {1, 7, 7, 2});
  compare("Where of a matrix, slopes", {}, wide[1], {1, 1});
}

BOOST_AUTO_TEST_CASE(angles_and_whole_numbers) {
  numbers angles{0, 1e-30, 1e-3, 0.3, -1, 2.5, 7, -100, 65504, 1e6, -1e12, infinity, not_a_number};
  for (auto& x : angles)
    x = double{static_cast<float>(x)};
  check_unary(
    "Sin", plain("Sin"), [](double x) { return std::sin(x); }, angles);
  check_unary(
    "Cos", plain("Cos"), [](double x) { return std::cos(x); }, angles);
  auto x = extremes();
  x.insert(x.end(), {0.5, 1.5, -0.5, -1.5, 2.5, -2.5, 0.7, -0.7, 8388609, -8388609, 4194304.5});
  check_unary(
    "Floor", plain("Floor"), [](double z) { return std::floor(z); }, x);
  check_unary(
    "Ceil", plain("Ceil"), [](double z) { return std::ceil(z); }, x);
  check_unary(
    "Round", plain("Round"), [](double z) { return std::nearbyint(z); }, x);
}

BOOST_AUTO_TEST_CASE(activations) {
  check_unary("HardSigmoid", plain("HardSigmoid"),
              [](double x) { return clipped(double{0.2F} * x + 0.5, 0, 1); });
  // Near 0, results stay exact: x is not lost in a sum with 1.
  check_unary(
    "HardSigmoid near 0",
    [](const extents& dims) { return single_node{"HardSigmoid"}.feed("x", dims).real("beta", 0); },
    [](double x) { return clipped(double{0.2F} * x, 0, 1); });
  check_unary("HardSwish", plain("HardSwish"),
              [](double x) { return x * clipped(x / 6 + 0.5, 0, 1); });
  check_unary(
    "Mish",
    [](const extents& dims) {
      return single_node{"Mish", 18}.feed("x", dims);
    },
    [](double x) { return x * std::tanh(std::log1p(std::exp(x))); });
  // Results near 0 stay exact: they are not computed as 1 - erf(x).
  check_unary(
    "Erfc", plain("Erfc"), [](double x) { return std::erfc(x); },
    {-infinity, -5.9, -1, -0.5, -1e-30, 0, 0.02, 0.5, 1, 2.5, 3, 4, 5.9, 7, 9, 100, not_a_number},
    2e-6);
  check_unary("Elu", plain("Elu"), [](double x) { return x > 0 ? x : std::expm1(x); });
  check_unary(
    "Celu",
    [](const extents& dims) { return single_node{"Celu"}.feed("x", dims).real("alpha", 0.5); },
    [](double x) { return x > 0 ? x : 0.5 * std::expm1(x / 0.5); });
  check_unary(
    "Celu, the other way round",
    [](const extents& dims) { return single_node{"Celu"}.feed("x", dims).real("alpha", -2); },
    [](double x) { return x > 0 ? x : -2 * std::expm1(x / -2); }, {-3, -0.5, 0, 0.5, 7});
  check_unary(
    "Gelu",
    [](const extents& dims) {
      return single_node{"Gelu", 20}.feed("x", dims).text("approximate", "tanh");
    },
    [](double x) {
      return x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    },
    {-3e38, -1e18, -100, -5, -1, -1e-9, 0, 1e-9, 1, 5, 100, 1e18, 1e30, 3e38}, 1e-5);
  const auto slopes = single_node{"Gelu", 20}
                        .feed("x", {4})
                        .text("approximate", "tanh")
                        .run<float>({{-1e20, 1e20, -3e30, 3e30}})[1];
  compare("Gelu, slopes", {}, slopes, {0, 1, 0, 1});
}

BOOST_AUTO_TEST_CASE(powers_and_quotients) {
  check_unary(
    "Pow 0",
    [](const extents& dims) { return single_node{"Pow"}.feed("x", dims).constant({0}, {}); },
    [](double) { return 1.0; });
  for (const double divisor : {3e38, 1e-30, 3.0, -0.25, 1e30})
    check_unary(
      "Div by " + std::to_string(divisor),
      [&](const extents& dims) {
        return single_node{"Div"}.feed("x", dims).constant({divisor}, {});
      },
      [&](double x) { return x / double{static_cast<float>(divisor)}; });
}

// A summand with factor 0 has no effect, even if it is infinite or NaN.
BOOST_AUTO_TEST_CASE(products_with_a_factor_of_zero) {
  const auto found = single_node{"Gemm"}
                       .feed("x", {shape::batch, 2})
                       .constant({1, 0, 0, 1}, {2, 2})
                       .constant({not_a_number, infinity}, {2})
                       .real("beta", 0)
                       .run<float>({{1, 2, 3, 4}});
  compare("Gemm", {}, found[0], {1, 2, 3, 4});
  compare("Gemm, slopes", {}, found[1], {1, 1, 1, 1});
}

BOOST_AUTO_TEST_CASE(sums_of_exponentials) {
  const auto reduce = [](const std::string& op, const extents& dims, const numbers& x) {
    return single_node{op, 11}.feed("x", dims).axes({1}).run<float>({x});
  };
  const numbers rows{
    1,        2,        3,     1e30,     -1e30, 0,    -infinity, -infinity, -infinity,    -infinity,
    infinity, 0,        -1000, -1001,    -999,  3e38, 3e38,      -3e38,     not_a_number, -infinity,
    1,        infinity, 3e38,  -infinity};
  numbers expected;
  for (std::size_t r = 0; r < rows.size(); r += 3) {
    const double most = std::max({rows[r], rows[r + 1], rows[r + 2]});
    double total = 0;
    bool is_nan = false;
    for (std::size_t i = r; i < r + 3; ++i) {
      is_nan = is_nan || std::isnan(rows[i]);
      total += rows[i] == most ? 1 : std::exp(rows[i] - most);
    }
    expected.push_back(is_nan ? not_a_number : std::isinf(most) ? most : most + std::log(total));
  }
  const auto n = static_cast<std::int64_t>(rows.size() / 3);
  compare("ReduceLogSumExp", {}, reduce("ReduceLogSumExp", {shape::batch, 3}, rows)[0], expected);
  compare("ReduceLogSumExp, no batch", {}, reduce("ReduceLogSumExp", {n, 3}, rows)[0], expected);
  // Logarithms of probabilities that are too small for a float must still be right.
  for (const auto& dims : {extents{2, 3}, extents{shape::batch, 3}}) {
    const auto found =
      single_node{"LogSoftmax"}.feed("x", dims).run<float>({{0, -200, -1e30, -infinity, 5, 5}})[0];
    compare("LogSoftmax", {}, found, {0, -200, -1e30, -infinity, -std::log(2), -std::log(2)});
  }
}

BOOST_AUTO_TEST_CASE(resizing_to_a_length_that_is_rounded) {
  const numbers x{1, 4, 9, 16, 25};
  const auto resized = [&](const std::string& mode, double scale, std::int64_t version = 19) {
    single_node node{"Resize", version};
    node.feed("x", {shape::batch, 1, 1, 5});
    if (version > 10)
      node.nothing().text("coordinate_transformation_mode", "half_pixel_symmetric");
    node.constant({1, 1, 1, scale}, {4}).text("mode", mode);
    return node.run<double>({x})[0];
  };
  const auto check = [&](const numbers& found, const numbers& expected) {
    compare("Resize", {}, found, expected, 1e-5);
  };
  check(resized("linear", 0.7), {2.7142856, 9, 19.857143});
  check(resized("linear", 1.3), {1.2307693, 3.5384617, 7.0769234, 11.692308, 17.384615, 24.307693});
  check(resized("nearest", 0.7), {4, 9, 16});
  check(resized("nearest", 1.3), {1, 4, 9, 9, 16, 25});
  check(resized("cubic", 0.7), {2.2157445, 9, 20.513123});
  check(resized("cubic", 1.3), {1.1652207, 3.1929891, 6.5853405, 11.528444, 17.760128, 24.471546});
  // In operator sets before 11, positions are rounded up if the image becomes smaller.
  check(resized("nearest", 0.6, 10), {1, 9, 25});
  check(resized("nearest", 0.4, 10), {1, 16});
  check(resized("nearest", 1.5, 10), {1, 1, 4, 9, 9, 16, 25});
  check(resized("nearest", 2, 10), {1, 1, 4, 4, 9, 9, 16, 16, 25, 25});
}

BOOST_AUTO_TEST_CASE(modes_of_resizing_that_are_unknown) {
  for (const std::string name : {"coordinate_transformation_mode", "nearest_mode"}) {
    single_node node{"Resize", 19};
    node.feed("x", {shape::batch, 1, 1, 5}).nothing().constant({1, 1, 1, 0.7}, {4});
    node.text(name, "other");
    BOOST_CHECK_EXCEPTION(
      node.run<double>({numbers(5)}), input_error, [&](const input_error& error) {
        return std::string{error.what()}.find("(Resize): attribute \"" + name
                                              + "\" is \"other\", which troupe does not know")
          != std::string::npos;
      });
  }
}

// Windows that would begin behind the image are left out.
BOOST_AUTO_TEST_CASE(windows_beyond_the_image) {
  struct pooling {
    std::int64_t kernel;
    std::int64_t stride;
    std::vector<std::int64_t> pads;
    std::int64_t extent;
    numbers expected;
  };
  const std::vector<pooling> all{{2, 5, {0, 1}, 5, {-1}},         {2, 2, {0, 1}, 4, {-1, -3}},
                                 {3, 2, {0, 2}, 5, {-1, -3, -5}}, {2, 3, {0, 1}, 5, {-1, -4}},
                                 {3, 3, {1, 2}, 6, {-1, -3, -6}}, {2, 2, {1, 0}, 4, {-1, -2, -4}}};
  for (const auto& x : all) {
    single_node node{"MaxPool", 18};
    node.feed("x", {shape::batch, 1, x.extent});
    node.integers("kernel_shape", {x.kernel}).integers("strides", {x.stride});
    node.integers("pads", x.pads).integer("ceil_mode", 1);
    numbers image;
    for (std::int64_t i = 1; i <= x.extent; ++i)
      image.push_back(-static_cast<double>(i));
    compare("MaxPool", {}, node.run<double>({image})[0], x.expected);
  }
}

BOOST_AUTO_TEST_CASE(norms_and_maxima) {
  const auto reduce = [](const std::string& op, const extents& dims, const numbers& x) {
    return single_node{op, 11}.feed("x", dims).axes({1}).run<float>({x});
  };
  const auto norms =
    reduce("ReduceL2", {shape::batch, 2}, {3, 4, 0, 0, not_a_number, 1, infinity, 0});
  compare("ReduceL2", {}, norms[0], {5, 0, not_a_number, infinity});
  compare("ReduceL2, slopes", {}, numbers{norms[1].begin(), norms[1].begin() + 4},
          {0.6, 0.8, 0, 0});
  for (const std::int64_t n : {1, 2, 3, 5, 8, 13}) {
    numbers x;
    for (int i = 0; i < 4 * n; ++i)
      x.push_back(std::sin(i) * std::pow(10, i % 30));
    for (const auto& dims : {extents{4, n}, extents{shape::batch, n}})
      for (const bool largest : {true, false}) {
        const auto found = reduce(largest ? "ReduceMax" : "ReduceMin", dims, x);
        numbers expected;
        numbers slopes;
        for (auto row = x.begin(); row != x.end(); row += n) {
          const auto best =
            largest ? std::max_element(row, row + n) : std::min_element(row, row + n);
          expected.push_back(*best);
          for (auto i = row; i != row + n; ++i)
            slopes.push_back(i == best ? 1 : 0);
        }
        compare("a maximum of " + std::to_string(n), {}, found[0], expected);
        compare("a maximum of " + std::to_string(n) + ", slopes", {}, found[1], slopes);
      }
  }
}

BOOST_AUTO_TEST_SUITE_END()
