// ONNX models that are refused, and the errors for them.

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
                      "operator; `troupe operators` lists the supported ones"));
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

// Hostile sizes must not take memory: shapes of 10^18 elements, and constants whose size doubles
// with every node.
// The initial states are 0 in any shape, but another shape shows that the operator is another one
// (PyTorch's LSTM with proj_size).
BOOST_AUTO_TEST_CASE(shapes_of_initial_states) {
  const auto error = [](const std::vector<std::int64_t>& dims) {
    small_model m;
    m.reshape("x", {-1, 2, 2}, "sequence");
    m.weight("w", {1, 12, 2}, 24);
    m.weight("r", {1, 12, 3}, 36);
    m.weight("h0", dims, static_cast<std::size_t>(dims[0] * dims[1] * dims[2]));
    for (auto& x : *m.proto.mutable_graph()->mutable_initializer(3)->mutable_float_data())
      x = 0;
    auto& lstm = m.node("LSTM", {"sequence", "w", "r", "", "", "h0", "h0"}, "y");
    integer(lstm, "hidden_size", 3);
    integer(lstm, "layout", 1);
    m.proto.mutable_opset_import(0)->set_version(14);
    return m.error();
  };
  BOOST_TEST(error({1, 1, 3}) == "(no error)");
  BOOST_TEST(contains(error({1, 1, 6}),
                      "the initial state has the shape (batch, 1, 6); expected "
                      "(batch, 1, 3)"));
  BOOST_TEST(contains(error({1, 2, 3}), "the initial state has the shape (batch, 2, 3)"));
}

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

// A constant of 2^48 equal numbers takes no memory until it becomes a tensor.
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
  tensor.set_data_type(onnx::TensorProto::STRING);
  BOOST_TEST(contains(elsewhere.error(), "has elements of the type STRING"));
  small_model newer;
  newer.proto.mutable_opset_import(0)->set_version(99);
  BOOST_TEST(contains(newer.error(),
                      "uses version 99 of ONNX's operators; export it with one from "
                      "1 to 24"));
  const std::vector<std::byte> nothing(3, std::byte{0xff});
  BOOST_TEST(contains(error_of([&] { onnx_model::parse(nothing, "a.onnx"); }),
                      "a.onnx: not an ONNX model, or cut off"));
}

// Operators that would mix the samples of a batch are refused.
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

// Whole numbers that depend on the number of samples, but are not a multiple of it, are refused.
BOOST_AUTO_TEST_CASE(numbers_from_the_size_of_the_batch) {
  const auto most = std::numeric_limits<std::int64_t>::max();
  const auto error = [](const std::string& op, const std::string& left, const std::string& right,
                        std::int64_t number) {
    small_model m;
    m.whole("0", {}, {0});
    m.whole("number", {}, {number});
    m.weight("half", {}, 1);
    m.proto.mutable_graph()->mutable_initializer(2)->set_float_data(0, 0.5F);
    m.node("Shape", {"x"}, "shape");
    m.node("Gather", {"shape", "0"}, "batch");
    m.node(op, {left, right}, "y");
    return m.error();
  };
  const std::string unknown = "output \"y\" depends on the size of the batch";
  BOOST_TEST(contains(error("Div", "number", "batch", 6), unknown));
  BOOST_TEST(contains(error("Div", "batch", "number", most), unknown));
  BOOST_TEST(contains(error("Mod", "number", "batch", 6), unknown));
  BOOST_TEST(contains(error("Mod", "batch", "number", 3), unknown));
  BOOST_TEST(contains(error("Mod", "batch", "half", 1), unknown));
  BOOST_TEST(error("Div", "number", "batch", 0) == "(no error)");
  BOOST_TEST(error("Div", "batch", "batch", 0) == "(no error)");
  BOOST_TEST(error("Mod", "batch", "number", 1) == "(no error)");
  small_model clipped;
  clipped.whole("0", {}, {0});
  clipped.whole("5", {}, {5});
  clipped.node("Shape", {"x"}, "shape");
  clipped.node("Gather", {"shape", "0"}, "batch");
  clipped.node("Clip", {"batch", "", "5"}, "y");
  BOOST_TEST(contains(clipped.error(), unknown));
  BOOST_TEST(contains(error("Pow", "batch", "number", 2), unknown));
  BOOST_TEST(contains(error("Pow", "number", "batch", 2), unknown));
  BOOST_TEST(contains(error("Pow", "batch", "half", 1), unknown));
  BOOST_TEST(error("Pow", "batch", "number", 0) == "(no error)");
  small_model sum;
  sum.whole("0", {}, {0});
  sum.node("Shape", {"x"}, "shape");
  sum.node("CumSum", {"shape", "0"}, "y");
  BOOST_TEST(contains(sum.error(), unknown));
}

// The size of the batch as the step of a range, and a constant with one row for each sample.
BOOST_AUTO_TEST_CASE(size_of_the_batch_in_constants) {
  small_model m;
  for (const int x : {0, 4})
    m.whole(std::to_string(x), {}, {x});
  m.node("Shape", {"x"}, "shape");
  m.node("Gather", {"shape", "0"}, "batch");
  m.node("Range", {"0", "4", "batch"}, "y");
  BOOST_TEST(contains(m.error(), "(Range): the range depends on the size of the batch"));
  small_model size;
  size.node("Shape", {"x"}, "shape");
  size.node("ConstantOfShape", {"shape"}, "rows");
  size.node("Size", {"rows"}, "y");
  BOOST_TEST(contains(size.error(), "output \"y\" depends on the size of the batch"));
}

// Rows of a constant, one for each sample, plus a weight: the result has the batch.
BOOST_AUTO_TEST_CASE(constants_with_a_batch) {
  small_model m;
  m.weight("w", {4}, 4);
  m.node("Shape", {"x"}, "shape");
  m.node("ConstantOfShape", {"shape"}, "rows");
  m.node("Add", {"rows", "w"}, "y");
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  BOOST_TEST(to_string(import_onnx(m.parsed(), g, {x}).at(0).x.shape()) == "(batch, 4)");
}

// Dimensions whose product exceeds 64 bits are refused.
BOOST_AUTO_TEST_CASE(products_of_extents) {
  constexpr auto large = std::int64_t{1} << 40;
  small_model merged;
  merged.reshape("x", {-1, large, large}, "y");
  BOOST_TEST(
    contains(merged.error(large), "cannot get the shape (-1, 1099511627776, 1099511627776)"));
  small_model tiled;
  tiled.whole("nothing", {std::int64_t{1} << 62, 0}, {});
  tiled.whole("times", {2}, {4, 1});
  tiled.node("Tile", {"nothing", "times"}, "y");
  BOOST_TEST(contains(tiled.error(), "(Tile): dimension 0 would be larger than 2^48"));
  small_model scattered;
  scattered.whole("data", {0, large, large}, {});
  scattered.whole("indices", {0, 1}, {});
  scattered.whole("updates", {0, large, large}, {});
  scattered.node("ScatterND", {"data", "indices", "updates"}, "same");
  scattered.node("Shape", {"same"}, "y");
  BOOST_TEST(scattered.error() == "(no error)");
  scattered.whole("more", {1}, {1});
  scattered.proto.mutable_graph()->mutable_node(0)->set_input(2, "more");
  BOOST_TEST(contains(scattered.error(), "(ScatterND): the updates, of shape (1), do not fit"));
}

// In ONNX, a mask with fewer columns than there are keys hides the other keys.
BOOST_AUTO_TEST_CASE(masks_with_fewer_columns_than_keys) {
  const auto error = [](std::int64_t columns) {
    small_model m;
    m.proto.mutable_opset_import(0)->set_version(23);
    m.weight("mask", {2, columns}, static_cast<std::size_t>(2 * columns));
    m.reshape("x", {0, 2, 2}, "sequence");
    auto& node = m.node("Attention", {"sequence", "sequence", "sequence", "mask"}, "y");
    integer(node, "q_num_heads", 1);
    integer(node, "kv_num_heads", 1);
    return m.error();
  };
  BOOST_TEST(error(2) == "(no error)");
  BOOST_TEST(
    contains(error(1), "(Attention): the mask has the shape (2, 1), and there are 2 keys"));
}

// ONNX adds a mask of numbers to the scores. A mask of truth values hides the keys where it is
// false.
BOOST_AUTO_TEST_CASE(masks_of_truth_values_that_depend_on_the_data) {
  const auto error = [](const std::string& mask) {
    small_model m;
    m.proto.mutable_opset_import(0)->set_version(23);
    m.weight("one", {4}, 4);
    m.reshape("x", {0, 2, 2}, "sequence");
    m.node("Greater", {"x", "one"}, "truth");
    m.reshape("truth", {0, 1, 2, 2}, "of truth");
    integer(m.node("Cast", {"of truth"}, "of numbers"), "to", onnx::TensorProto::FLOAT);
    auto& node = m.node("Attention", {"sequence", "sequence", "sequence", mask}, "y");
    integer(node, "q_num_heads", 1);
    integer(node, "kv_num_heads", 1);
    return m.error();
  };
  BOOST_TEST(error("of numbers") == "(no error)");
  BOOST_TEST(contains(error("of truth"), "(Attention): the truth values of its mask depend on"));
}

BOOST_AUTO_TEST_SUITE_END()
