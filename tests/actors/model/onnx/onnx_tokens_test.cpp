// ONNX models that compute with tokens before they look up rows of an embedding table.

#include "kernels/devices/graph_session.hpp"
#include "tests/actors/model/onnx/small_model.hpp"

#include <algorithm>
#include <array>
#include <vector>

BOOST_AUTO_TEST_SUITE(onnx_tokens)

using namespace troupe;
using namespace troupe::test;

namespace {

/// A model with tokens x (batch, 4), and a table of 3 rows of 2 elements, whose values are 0 to 5.
struct token_model : small_model {
  token_model() {
    proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::INT64);
    weight("table", {3, 2}, 0);
    for (int i = 0; i < 6; ++i)
      proto.mutable_graph()->mutable_initializer(0)->add_float_data(static_cast<float>(i));
  }

  std::vector<double> output(const std::vector<std::int32_t>& tokens) const {
    const auto model = parsed();
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 4}, dtype::int32);
    const auto y = import_onnx(model, g, {x}).at(0).x;
    graph_session<double> s{g};
    std::ranges::copy(model.values(g.parameters()), s.variables().begin());
    const std::vector<session_feed<double>> feeds{session_feed<double>{x, tokens}};
    const auto values = s.run(feeds, std::array{y})[0];
    return {values.begin(), values.end()};
  }

  std::string refusal() const {
    return error_of([&] {
      const auto model = parsed();
      graph g;
      import_onnx(model, g, {g.placeholder("x", {shape::batch, 4}, dtype::int32)});
    });
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(parts_of_the_tokens) {
  token_model m;
  m.whole("1", {1}, {1});
  m.whole("3", {1}, {3});
  m.node("Slice", {"x", "1", "3", "1"}, "part");
  m.node("Gather", {"table", "part"}, "y");
  BOOST_TEST(m.output({0, 2, 1, 0}) == std::vector<double>({4, 5, 2, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(onnx_table_rows(m.parsed(), "x") == 3u);
}

// PyTorch exports x[:, 2] in this form.
BOOST_AUTO_TEST_CASE(single_tokens) {
  token_model m;
  m.whole("2", {}, {2});
  integer(m.node("Gather", {"x", "2"}, "token"), "axis", 1);
  m.node("Gather", {"table", "token"}, "y");
  BOOST_TEST(m.output({0, 2, 1, 9, 9, 9, 2, 9}) == std::vector<double>({2, 3, 4, 5}),
             boost::test_tools::per_element());
  BOOST_TEST(onnx_table_rows(m.parsed(), "x") == 3u);
  token_model real;
  real.whole("1", {1}, {1});
  real.whole("3", {1}, {3});
  real.node("Slice", {"x", "1", "3", "1"}, "part");
  real.reshape("part", {0, 2, 1}, "column");
  integer(real.node("Cast", {"column"}, "y"), "to", onnx::TensorProto::FLOAT);
  BOOST_TEST(real.output({0, 2, 1, 9}) == std::vector<double>({2, 1}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(parts_as_real_numbers) {
  token_model m;
  m.whole("2", {1}, {2});
  m.whole("4", {1}, {4});
  m.whole("1", {1}, {1});
  m.node("Slice", {"x", "2", "4", "1"}, "part");
  integer(m.node("Cast", {"part"}, "y"), "to", onnx::TensorProto::FLOAT);
  BOOST_TEST(m.output({0, 2, 1, 9}) == std::vector<double>({1, 9}),
             boost::test_tools::per_element());
}

// Keras writes its embedding in this form.
BOOST_AUTO_TEST_CASE(negative_tokens_count_from_the_end) {
  token_model m;
  m.whole("rows", {}, {3});
  m.whole("0", {}, {0});
  m.node("Add", {"x", "rows"}, "from the end");
  m.node("Less", {"x", "0"}, "negative");
  m.node("Where", {"negative", "from the end", "x"}, "rows of x");
  m.node("Gather", {"table", "rows of x"}, "y");
  BOOST_TEST(m.output({2, 0, 0, 1}) == std::vector<double>({4, 5, 0, 1, 0, 1, 2, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(onnx_table_rows(m.parsed(), "x") == 3u);
}

BOOST_AUTO_TEST_CASE(changed_tokens_are_refused) {
  token_model m;
  m.whole("1", {}, {1});
  m.node("Add", {"x", "1"}, "next");
  auto& last = m.node("Gather", {"table", "next"}, "y");
  BOOST_TEST(contains(m.refusal(),
                      "node \"the y\" (Gather): the model computes another position than 0 from "
                      "the token 0; compute the positions before the model"));
  last.set_op_type("Relu");
  last.mutable_input()->RemoveLast();
  last.set_input(0, "next");
  BOOST_TEST(contains(m.refusal(),
                      "node \"the y\" (Relu): input 0 is computed from the whole numbers of the "
                      "model's input"));
  m.proto.mutable_graph()->mutable_node()->RemoveLast();
  m.proto.mutable_graph()->mutable_output(0)->set_name("next");
  BOOST_TEST(contains(m.refusal(), "output \"next\" is computed only from the whole numbers"));
}

BOOST_AUTO_TEST_CASE(doubling_is_bounded) {
  token_model m;
  m.node("Add", {"x", "x"}, "0");
  for (int i = 1; i < 60; ++i)
    m.node("Add", {std::to_string(i - 1), std::to_string(i - 1)}, std::to_string(i));
  m.node("Gather", {"table", "59"}, "y");
  BOOST_TEST(contains(m.refusal(), "the model computes too much with its tokens"));
}

BOOST_AUTO_TEST_SUITE_END()
