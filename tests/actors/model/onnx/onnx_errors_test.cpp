// ONNX models that are refused, with their errors.

#include "tests/actors/model/onnx/small_model.hpp"

#include <limits>
#include <utility>

BOOST_AUTO_TEST_SUITE(onnx_errors)

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_CASE(operators_that_are_not_there) {
  small_model m;
  m.node("TopK", {"x"}, "y");
  BOOST_TEST(contains(m.error(),
                      "model.onnx: node \"the y\" (TopK): troupe does not have this "
                      "operator; it has Abs, Add, "));
  m.proto.mutable_graph()->mutable_node(0)->set_domain("com.example");
  BOOST_TEST(contains(m.error(), "operator of the domain \"com.example\""));
}

BOOST_AUTO_TEST_CASE(attributes) {
  small_model m;
  auto& node = m.node("Softmax", {"x"}, "y");
  integer(node, "axis", 1);
  BOOST_TEST(m.error() == "(no error)");
  integer(node, "temperature", 2);
  BOOST_TEST(contains(m.error(), "(Softmax): attribute \"temperature\" is not supported"));
  node.mutable_attribute(0)->set_i(0);
  BOOST_TEST(contains(m.error(), "axis 0 is the batch, whose samples must stay apart"));
  node.mutable_attribute(0)->set_i(7);
  BOOST_TEST(contains(m.error(), "axis 7 does not exist in a tensor with 2 dimensions"));
  node.mutable_attribute(0)->set_type(onnx::AttributeProto::FLOAT);
  BOOST_TEST(contains(m.error(), "attribute \"axis\" has the type FLOAT, expected INT"));
}

BOOST_AUTO_TEST_CASE(shapes) {
  small_model m;
  m.weight("w", {3, 2}, 6);
  m.node("MatMul", {"x", "w"}, "y");
  BOOST_TEST(contains(m.error(),
                      "node \"the y\" (MatMul): matmul: \"x\" (batch, 4) and \"w\" (3, 2) "
                      "do not fit"));
}

BOOST_AUTO_TEST_CASE(names) {
  small_model dangling;
  dangling.node("Relu", {"z"}, "y");
  BOOST_TEST(
    contains(dangling.error(), "node \"the y\" (Relu) reads \"z\", which no node computes"));
  small_model cycle;
  cycle.node("Add", {"x", "b"}, "a");
  cycle.node("Relu", {"a"}, "b");
  cycle.node("Relu", {"b"}, "y");
  BOOST_TEST(contains(cycle.error(),
                      "reads \"b\", which is computed later, by node \"the b\" (Relu): "
                      "the nodes form a cycle or are out of order"));
  small_model twice;
  twice.node("Relu", {"x"}, "y");
  twice.node("Tanh", {"x"}, "y");
  BOOST_TEST(contains(twice.error(), "two tensors are called \"y\""));
  small_model nothing;
  BOOST_TEST(contains(nothing.error(), "no node computes the output \"y\""));
}

// Shapes of 10^18 elements, and constants that double with every node, take no memory.
BOOST_AUTO_TEST_CASE(sizes) {
  small_model longer;
  longer.weight("w", {2, 4}, 3);
  longer.node("Add", {"x", "w"}, "y");
  BOOST_TEST(contains(longer.error(),
                      "tensor \"w\" of shape (2, 4) needs 8 elements, but the file holds 3"));
  small_model huge;
  huge.weight("w", {1'000'000'000, 1'000'000'000}, 1);
  huge.node("Add", {"x", "w"}, "y");
  BOOST_TEST(contains(huge.error(), "has more than 2^48 elements"));
  small_model large;
  large.weight("w", {1 << 30, 4}, 1);
  large.node("Add", {"x", "w"}, "y");
  BOOST_TEST(contains(large.error(), "needs 4294967296 elements, but the file holds 1"));
  small_model doubling;
  auto& numbers = *doubling.proto.mutable_graph()->add_initializer();
  numbers.set_name("c0");
  numbers.set_data_type(onnx::TensorProto::INT64);
  numbers.add_dims(2);
  numbers.add_int64_data(2);
  numbers.add_int64_data(2);
  for (int i = 0; i < 60; ++i)
    integer(doubling.node("Concat", {"c" + std::to_string(i), "c" + std::to_string(i)},
                          "c" + std::to_string(i + 1)),
            "axis", 0);
  doubling.node("Reshape", {"x", "c60"}, "y");
  BOOST_TEST(contains(doubling.error(), "a constant of shape (131072) is too large"));
}

// One number repeated 2^48 times takes no memory until it becomes a tensor.
BOOST_AUTO_TEST_CASE(constants_and_paddings) {
  small_model m;
  auto& extents = *m.proto.mutable_graph()->add_initializer();
  extents.set_name("extents");
  extents.set_data_type(onnx::TensorProto::INT64);
  extents.add_dims(2);
  extents.add_int64_data(std::int64_t{1} << 24);
  extents.add_int64_data(std::int64_t{1} << 24);
  m.node("ConstantOfShape", {"extents"}, "zeros");
  m.node("Add", {"x", "zeros"}, "y");
  BOOST_TEST(contains(m.error(),
                      "node \"the zeros\" (ConstantOfShape): a constant of shape (16777216, "
                      "16777216) has 281474976710656 elements; at most 268435456 are accepted"));
  for (const auto& [before, behind] :
       {std::pair{std::numeric_limits<std::int64_t>::min(), std::int64_t{0}},
        {std::int64_t{0}, std::numeric_limits<std::int64_t>::min()},
        {std::int64_t{-5}, std::int64_t{0}},
        {std::int64_t{1} << 48, std::int64_t{0}}}) {
    small_model padded;
    auto& pads = *padded.proto.mutable_graph()->add_initializer();
    pads.set_name("pads");
    pads.set_data_type(onnx::TensorProto::INT64);
    pads.add_dims(4);
    for (const auto x : {std::int64_t{0}, before, std::int64_t{0}, behind})
      pads.add_int64_data(x);
    padded.node("Pad", {"x", "pads"}, "y");
    BOOST_TEST(contains(padded.error(),
                        "(Pad): a padding of " + std::to_string(before != 0 ? before : behind)
                          + " elements along axis 1, which has 4"));
  }
}

BOOST_AUTO_TEST_CASE(what_a_file_may_hold) {
  small_model elsewhere;
  elsewhere.weight("w", {4}, 0);
  elsewhere.node("Add", {"x", "w"}, "y");
  auto& tensor = *elsewhere.proto.mutable_graph()->mutable_initializer(0);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  BOOST_TEST(contains(elsewhere.error(), "tensor \"w\" is stored in another file"));
  tensor.set_data_location(onnx::TensorProto::DEFAULT);
  tensor.set_data_type(onnx::TensorProto::FLOAT16);
  BOOST_TEST(contains(elsewhere.error(), "has elements of the type FLOAT16"));
  small_model newer;
  newer.proto.mutable_opset_import(0)->set_version(99);
  BOOST_TEST(contains(newer.error(),
                      "uses version 99 of ONNX's operators; export it with one from "
                      "1 to 24"));
  const std::vector<std::byte> nothing(3, std::byte{0xff});
  BOOST_TEST(contains(error_of([&] { onnx_model::parse(nothing, "a.onnx"); }),
                      "a.onnx: not an ONNX model, or cut off"));
}

// Operators that would mix the samples of a batch.
BOOST_AUTO_TEST_CASE(the_batch_stays_apart) {
  small_model m;
  m.proto.mutable_opset_import(0)->set_version(11);
  auto& node = m.node("ReduceSum", {"x"}, "y");
  auto& axes = *node.add_attribute();
  axes.set_name("axes");
  axes.set_type(onnx::AttributeProto::INTS);
  axes.add_ints(0);
  BOOST_TEST(contains(m.error(), "axis 0 is the batch, whose samples must stay apart"));
  small_model flat;
  integer(flat.node("Flatten", {"x"}, "y"), "axis", 0);
  BOOST_TEST(contains(flat.error(), "the batch must stay a separate dimension"));
}

BOOST_AUTO_TEST_SUITE_END()
