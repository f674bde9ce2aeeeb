#pragma once

#include "actors/model/onnx/importer.hpp"
#include "actors/model/onnx/model.hpp"
#include "kernels/devices/graph_session.hpp"
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

// ONNX models of one node, whose results are compared with plain formulas.

namespace troupe::test {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline const double not_a_number = std::nan("");

using numbers = std::vector<double>;

/// A model with one node. The member functions add its inputs in order.
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

  /// The result of the node, and the gradient of the sum of the result with respect to the first
  /// feed.
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

/// Numbers of all magnitudes that a normal (not denormal) float can have, with both signs, infinity
/// and NaN.
inline numbers extremes() {
  numbers result{0, 1e-30, 1e-9, 1e-3, 0.3, 1, 2.5, 5.9, 7, 100, 65504, 1e6, 1e18, 1e30, 3e38};
  for (std::size_t i = 1, n = result.size(); i < n; ++i)
    result.push_back(-result[i]);
  for (auto& x : result)
    x = double{static_cast<float>(x)};
  result.insert(result.end(), {infinity, -infinity, not_a_number});
  return result;
}

inline bool close(double found, double expected, double tolerance) {
  // In float, a result beyond the range becomes infinite or 0.
  if (std::abs(expected) > double{std::numeric_limits<float>::max()})
    expected = std::copysign(infinity, expected);
  if (std::isnan(expected) || std::isinf(expected))
    return found == expected || (std::isnan(found) && std::isnan(expected));
  return std::abs(found - expected) <= tolerance * std::abs(expected) + 1e-37;
}

inline void compare(const std::string& what, const numbers& x, const numbers& found,
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

/// Checks a node with one input against a formula. The input is passed as one vector, and as
/// samples with one feature. For numbers of usual size, the gradient must equal central
/// differences.
inline void check_unary(const std::string& what, const maker& make, const formula& f,
                        const numbers& x = extremes(), double tolerance = 1e-6) {
  numbers expected;
  std::ranges::transform(x, std::back_inserter(expected), f);
  numbers usual;
  numbers slopes;
  constexpr double step = 1e-5;
  for (const double z : x) {
    const double left = (f(z) - f(z - step)) / step;
    const double right = (f(z + step) - f(z)) / step;
    // Skips points near kinks and near infinite results, where differences are inexact.
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

inline maker plain(const std::string& op) {
  return [op](const extents& dims) { return single_node{op}.feed("x", dims); };
}

inline double clipped(double x, double low, double high) {
  return std::isnan(x) ? x : std::min(std::max(x, low), high);
}

} // namespace troupe::test
