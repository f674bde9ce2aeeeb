// ONNX's operators on the largest and the smallest numbers and on NaN, against plain formulas in
// double; and their gradients, against central differences. Also how images are resized and pooled
// at their edges, against onnxruntime 1.32.

#include "actors/model/onnx/importer.hpp"
#include "actors/model/onnx/model.hpp"
#include "kernels/cpu/graph_session.hpp"
#include "kernels/error.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <string>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(onnx_extremes)

using namespace troupe;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

using numbers = std::vector<double>;

/// A model with one node. Its inputs are added in order.
class single_node {
public:
  explicit single_node(const std::string& op, std::int64_t version = 17) {
    proto_.set_ir_version(8);
    proto_.add_opset_import()->set_version(version);
    auto& graph = *proto_.mutable_graph();
    graph.set_name("g");
    graph.add_output()->set_name("output");
    node_.set_op_type(op);
    node_.add_output("output");
  }

  single_node& feed(const std::string& name, const std::vector<std::int64_t>& dims) {
    auto& port = *proto_.mutable_graph()->add_input();
    port.set_name(name);
    auto& type = *port.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::TensorProto::FLOAT);
    for (const auto extent : dims)
      if (extent == shape::batch)
        type.mutable_shape()->add_dim()->set_dim_param("batch");
      else
        type.mutable_shape()->add_dim()->set_dim_value(extent);
    node_.add_input(name);
    shapes_.push_back(dims);
    return *this;
  }

  single_node& constant(const numbers& values, const std::vector<std::int64_t>& dims,
                        onnx::TensorProto::DataType type = onnx::TensorProto::FLOAT) {
    const auto name = "constant " + std::to_string(node_.input_size());
    auto& node = *proto_.mutable_graph()->add_node();
    node.set_op_type("Constant");
    node.add_output(name);
    auto& attribute = *node.add_attribute();
    attribute.set_name("value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    auto& tensor = *attribute.mutable_t();
    tensor.set_data_type(type);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    for (const double x : values)
      if (type == onnx::TensorProto::FLOAT)
        tensor.add_float_data(static_cast<float>(x));
      else
        tensor.add_int32_data(static_cast<int>(x));
    node_.add_input(name);
    return *this;
  }

  single_node& nothing() {
    node_.add_input("");
    return *this;
  }

  single_node& real(const std::string& name, double value) {
    auto& attribute = *node_.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(static_cast<float>(value));
    return *this;
  }

  single_node& integers(const std::string& name, const std::vector<std::int64_t>& values) {
    auto& attribute = *node_.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INTS);
    attribute.mutable_ints()->Add(values.begin(), values.end());
    return *this;
  }

  single_node& integer(const std::string& name, std::int64_t value) {
    auto& attribute = *node_.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
    return *this;
  }

  single_node& axes(const std::vector<std::int64_t>& axes) { return integers("axes", axes); }

  single_node& text(const std::string& name, const std::string& value) {
    auto& attribute = *node_.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::STRING);
    attribute.set_s(value);
    return *this;
  }

  /// The node's result, and the gradient of its sum with respect to the first feed.
  template <class T>
  std::array<numbers, 2> run(const std::vector<numbers>& feeds) const {
    auto proto = proto_;
    *proto.mutable_graph()->add_node() = node_;
    const auto bytes = proto.SerializeAsString();
    const auto model = onnx_model::parse(std::as_bytes(std::span{bytes}), "model");
    graph g;
    std::vector<expression> inputs;
    std::vector<std::vector<T>> values;
    std::vector<session_feed<T>> given;
    for (std::size_t i = 0; i < feeds.size(); ++i) {
      inputs.push_back(g.placeholder("feed " + std::to_string(i), shape{shapes_[i]}));
      values.emplace_back(feeds[i].begin(), feeds[i].end());
    }
    for (std::size_t i = 0; i < feeds.size(); ++i)
      given.emplace_back(inputs[i], std::span<const T>{values[i]});
    const auto y = import_onnx(model, g, inputs).at(0).x;
    const auto slopes = gradients(sum(y), std::array{inputs[0]});
    graph_session<T> session{g};
    const auto found = session.run(given, std::array{y, slopes[0]});
    return {numbers{found[0].begin(), found[0].end()}, numbers{found[1].begin(), found[1].end()}};
  }

private:
  onnx::ModelProto proto_;
  onnx::NodeProto node_;
  std::vector<std::vector<std::int64_t>> shapes_;
};

/// Numbers of all magnitudes that a float can represent without being denormal.
numbers extremes() {
  numbers result{0, 1e-30, 1e-9, 1e-3, 0.3, 1, 2.5, 5.9, 7, 100, 65504, 1e6, 1e18, 1e30, 3e38};
  for (std::size_t i = 1, n = result.size(); i < n; ++i)
    result.push_back(-result[i]);
  for (auto& x : result)
    x = double{static_cast<float>(x)};
  result.insert(result.end(), {infinity, -infinity, nan});
  return result;
}

bool close(double found, double expected, double tolerance) {
  // Results beyond the range of floats are infinite or 0.
  if (std::abs(expected) > double{std::numeric_limits<float>::max()})
    expected = std::copysign(infinity, expected);
  if (std::isnan(expected) || std::isinf(expected))
    return found == expected || (std::isnan(found) && std::isnan(expected));
  return std::abs(found - expected) <= tolerance * std::abs(expected) + 1e-37;
}

void compare(const std::string& what, const numbers& x, const numbers& found,
             const numbers& expected, double tolerance = 1e-6) {
  BOOST_TEST_REQUIRE(found.size() == expected.size(), what);
  for (std::size_t i = 0; i < found.size(); ++i)
    BOOST_TEST(close(found[i], expected[i], tolerance),
               what << ", element " << i << (i < x.size() ? ", of " + std::to_string(x[i]) : "")
                    << ": " << found[i] << ", expected " << expected[i]);
}

using formula = std::function<double(double)>;
using extents = std::vector<std::int64_t>;
using maker = std::function<single_node(const extents&)>;

/// A node with one fed input: as one vector, and as samples of one feature. For numbers of ordinary
/// size, its gradient equals central differences.
void check_unary(const std::string& what, const maker& make, const formula& f,
                 const numbers& x = extremes(), double tolerance = 1e-6) {
  numbers expected;
  std::ranges::transform(x, std::back_inserter(expected), f);
  numbers usual;
  numbers slopes;
  constexpr double step = 1e-5;
  for (const double z : x) {
    const double left = (f(z) - f(z - step)) / step;
    const double right = (f(z + step) - f(z)) / step;
    // Leaves out points near infinite limits and kinks.
    if (std::abs(z) > 0.01 && std::abs(z) < 10 && std::abs(left - right) < 1e-3) {
      usual.push_back(z);
      slopes.push_back((left + right) / 2);
    }
  }
  const auto size = [](const numbers& z) { return static_cast<std::int64_t>(z.size()); };
  compare(what, x, make({size(x)}).run<float>({x})[0], expected, tolerance);
  compare(what, x, make({shape::batch, 1}).run<float>({x})[0], expected, tolerance);
  if (usual.empty())
    return;
  const auto found = make({size(usual)}).run<double>({usual})[1];
  for (std::size_t i = 0; i < found.size(); ++i)
    BOOST_TEST(std::abs(found[i] - slopes[i]) <= 1e-5 * (1 + std::abs(slopes[i])),
               what << ", slope at " << usual[i] << ": " << found[i] << ", expected " << slopes[i]);
}

maker plain(const std::string& op) {
  return [op](const extents& dims) { return single_node{op}.feed("x", dims); };
}

double clipped(double x, double low, double high) {
  return std::isnan(x) ? x : std::min(std::max(x, low), high);
}

} // namespace

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
  // The largest floats mean that there is no limit: infinity stays.
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
      return std::isnan(x) || std::isnan(y) ? nan : largest ? std::max(x, y) : std::min(x, y);
    };
    numbers expected;
    for (std::size_t i = 0; i < a.size(); ++i)
      expected.push_back(f(a[i], b[i]));
    compare(op, a, single_node{op}.feed("x", {n}).feed("y", {n}).run<float>({a, b})[0], expected);
    // Three operands: one is a number, one is a row.
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

// An element that a mask excludes has no effect, even if it is infinite or NaN.
BOOST_AUTO_TEST_CASE(where) {
  const auto x = extremes();
  const auto n = static_cast<std::int64_t>(x.size());
  numbers mask;
  numbers others;
  numbers expected;
  numbers slopes;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mask.push_back(i % 2 == 0 ? 1 : 0);
    others.push_back(i % 4 < 2 ? nan : infinity);
    expected.push_back(i % 2 == 0 ? x[i] : others[i]);
    slopes.push_back(i % 2 == 0 ? 1 : 0);
  }
  // The condition is the first input and must be known.
  const auto make = [&](const extents& dims) {
    return single_node{"Where"}.constant(mask, dims, onnx::TensorProto::BOOL);
  };
  compare("Where of two feeds", x,
          make({n}).feed("x", {n}).feed("y", {n}).run<float>({x, others})[0], expected);
  const auto constant = make({n}).feed("x", {n}).constant(others, {n}).run<float>({x});
  compare("Where of a constant", x, constant[0], expected);
  compare("Where of a constant, slopes", x, constant[1], slopes);
  // A row of truth values for all samples, and one number: the usual mask of attention.
  const auto masked = single_node{"Where"}
                        .constant({1, 0, 1}, {3}, onnx::TensorProto::BOOL)
                        .feed("x", {shape::batch, 3})
                        .constant({-infinity}, {})
                        .run<float>({{1, nan, 3, infinity, infinity, -infinity}});
  compare("Where of a row", {}, masked[0], {1, -infinity, 3, infinity, -infinity, -infinity});
  // A matrix of truth values enlarges the other operands.
  const auto wide = single_node{"Where"}
                      .constant({1, 0, 0, 1}, {2, 2}, onnx::TensorProto::BOOL)
                      .feed("x", {2})
                      .constant({7}, {1})
                      .run<float>({{1, 2}});
  compare("Where of a matrix", {}, wide[0], {1, 7, 7, 2});
  compare("Where of a matrix, slopes", {}, wide[1], {1, 1});
}

BOOST_AUTO_TEST_CASE(activations) {
  check_unary("HardSigmoid", plain("HardSigmoid"),
              [](double x) { return clipped(double{0.2F} * x + 0.5, 0, 1); });
  // Small numbers are not lost in a sum with 1.
  check_unary(
    "HardSigmoid near 0",
    [](const extents& dims) { return single_node{"HardSigmoid"}.feed("x", dims).real("beta", 0); },
    [](double x) { return clipped(double{0.2F} * x, 0, 1); });
  check_unary("HardSwish", plain("HardSwish"),
              [](double x) { return x * clipped(x / 6 + 0.5, 0, 1); });
  // Computed as 1 - erf(x): beyond 1, the digits of 1 are exact, those of the result are not.
  check_unary("Erfc", plain("Erfc"), [](double x) { return std::erfc(x); },
              {-infinity, -5.9, -1, -0.5, -1e-30, 0, 0.02, 0.5, 1, nan});
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

// A summand with factor 0 is not read.
BOOST_AUTO_TEST_CASE(products_with_a_factor_of_zero) {
  const auto found = single_node{"Gemm"}
                       .feed("x", {shape::batch, 2})
                       .constant({1, 0, 0, 1}, {2, 2})
                       .constant({nan, infinity}, {2})
                       .real("beta", 0)
                       .run<float>({{1, 2, 3, 4}});
  compare("Gemm", {}, found[0], {1, 2, 3, 4});
  compare("Gemm, slopes", {}, found[1], {1, 1, 1, 1});
}

BOOST_AUTO_TEST_CASE(sums_of_exponentials) {
  const auto reduce = [](const std::string& op, const extents& dims, const numbers& x) {
    return single_node{op, 11}.feed("x", dims).axes({1}).run<float>({x});
  };
  const numbers rows{1,         2,         3,         1e30,      -1e30,    0,
                     -infinity, -infinity, -infinity, -infinity, infinity, 0,
                     -1000,     -1001,     -999,      3e38,      3e38,     -3e38,
                     nan,       -infinity, 1,         infinity,  3e38,     -infinity};
  numbers expected;
  for (std::size_t r = 0; r < rows.size(); r += 3) {
    const double most = std::max({rows[r], rows[r + 1], rows[r + 2]});
    double total = 0;
    bool is_nan = false;
    for (std::size_t i = r; i < r + 3; ++i) {
      is_nan = is_nan || std::isnan(rows[i]);
      total += rows[i] == most ? 1 : std::exp(rows[i] - most);
    }
    expected.push_back(is_nan ? nan : std::isinf(most) ? most : most + std::log(total));
  }
  const auto n = static_cast<std::int64_t>(rows.size() / 3);
  compare("ReduceLogSumExp", {}, reduce("ReduceLogSumExp", {shape::batch, 3}, rows)[0], expected);
  compare("ReduceLogSumExp, no batch", {}, reduce("ReduceLogSumExp", {n, 3}, rows)[0], expected);
  // The logarithm of a probability that is too small for a float.
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
  // Before operator set 11, positions are rounded up if the image becomes smaller.
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

// A last window that would begin behind the image does not count.
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
  const auto norms = reduce("ReduceL2", {shape::batch, 2}, {3, 4, 0, 0, nan, 1, infinity, 0});
  compare("ReduceL2", {}, norms[0], {5, 0, nan, infinity});
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
