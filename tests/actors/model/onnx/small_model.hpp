#pragma once

#include "actors/model/onnx/importer.hpp"
#include "actors/model/onnx/model.hpp"
#include "tests/support/input_errors.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

namespace troupe::test {

/// An ONNX model with input x (batch, 4) and output y. Tests add nodes and weights.
struct small_model {
  onnx::ModelProto proto;

  small_model() {
    proto.set_ir_version(8);
    proto.add_opset_import()->set_version(13);
    auto& graph = *proto.mutable_graph();
    graph.set_name("g");
    auto& input = *graph.add_input();
    input.set_name("x");
    auto& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::TensorProto::FLOAT);
    type.mutable_shape()->add_dim()->set_dim_param("batch");
    type.mutable_shape()->add_dim()->set_dim_value(4);
    graph.add_output()->set_name("y");
  }

  onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::string& output) {
    auto& result = *proto.mutable_graph()->add_node();
    result.set_op_type(op);
    result.set_name("the " + output);
    for (const auto& input : inputs)
      result.add_input(input);
    result.add_output(output);
    return result;
  }

  void weight(const std::string& name, const std::vector<std::int64_t>& dims, std::size_t values) {
    auto& tensor = *proto.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    for (std::size_t i = 0; i < values; ++i)
      tensor.add_float_data(1);
  }

  /// Converts all FLOAT initializers to another type of real numbers.
  void convert_weights(onnx::TensorProto::DataType type) {
    for (auto& tensor : *proto.mutable_graph()->mutable_initializer()) {
      if (tensor.data_type() != onnx::TensorProto::FLOAT || type == onnx::TensorProto::FLOAT)
        continue;
      for (const float x : tensor.float_data())
        if (type == onnx::TensorProto::DOUBLE)
          tensor.add_double_data(double{x});
        else // 0, 0.5 or 1
          tensor.add_int32_data(x == 0                                  ? 0
                                  : type == onnx::TensorProto::BFLOAT16 ? (x == 1 ? 0x3f80 : 0x3f00)
                                  : x == 1                              ? 0x3c00
                                                                        : 0x3800);
      tensor.clear_float_data();
      tensor.set_data_type(type);
    }
  }

  /// Adds a constant tensor of whole numbers.
  void whole(const std::string& name, const std::vector<std::int64_t>& dims,
             const std::vector<std::int64_t>& values) {
    auto& tensor = *proto.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.mutable_dims()->Add(dims.begin(), dims.end());
    tensor.mutable_int64_data()->Add(values.begin(), values.end());
  }

  /// Adds a Reshape node to these dimensions.
  void reshape(const std::string& input, const std::vector<std::int64_t>& dims,
               const std::string& output) {
    whole("shape of " + output, {static_cast<std::int64_t>(dims.size())}, dims);
    node("Reshape", {input, "shape of " + output}, output);
  }

  onnx_model parsed() const {
    const auto bytes = proto.SerializeAsString();
    return onnx_model::parse(std::as_bytes(std::span{bytes}), "model.onnx");
  }

  std::string error(std::int64_t features = 4) const {
    return error_of([&] {
      const auto model = parsed();
      graph g;
      import_onnx(model, g, {g.placeholder("x", {shape::batch, features})});
    });
  }
};

inline constexpr std::array real_types{onnx::TensorProto::FLOAT, onnx::TensorProto::DOUBLE,
                                       onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16};

/// Adds a body (a graph) to a node, as an attribute with this name.
inline onnx::GraphProto& add_body(onnx::NodeProto& node, const std::string& name) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  return *attribute.mutable_g();
}

/// Adds metadata to a node. It is in field 9, which older schemas of ONNX do not have.
inline void mark(onnx::NodeProto& node, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  const auto bytes = entry.SerializeAsString();
  constexpr char tag = 9 << 3 | 2;
  BOOST_TEST_REQUIRE(bytes.size() < 128);
  BOOST_TEST_REQUIRE(
    node.ParseFromString(node.SerializeAsString() + tag + static_cast<char>(bytes.size()) + bytes));
}

/// Adds an attribute with a whole number.
inline void integer(onnx::NodeProto& node, const std::string& name, std::int64_t value) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

} // namespace troupe::test
