// ONNX models that compute with tokens before they look up rows of an embedding table.

#include "kernels/devices/graph_session.hpp"
#include "tests/actors/model/onnx/small_model.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
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

// Padding masks, such as (x != 0).float().unsqueeze(2).
BOOST_AUTO_TEST_CASE(comparisons_become_real_numbers) {
  const auto mask = [](const std::string& op, bool of_real, bool negated, bool wide) {
    token_model m;
    m.whole("1", {}, {1});
    std::string from = "x";
    std::string bound = "1";
    for (const auto* name : {"x", "1"})
      if (of_real)
        integer(m.node("Cast", {name}, std::string{"real "} + name), "to",
                onnx::TensorProto::FLOAT);
    if (of_real) {
      from = "real x";
      bound = "real 1";
    }
    m.node(op, {from, bound}, "is");
    if (negated)
      m.node("Not", {"is"}, "is not");
    std::string truth = negated ? "is not" : "is";
    if (wide) {
      m.reshape(truth, {0, 4, 1}, "column");
      truth = "column";
    }
    integer(m.node("Cast", {truth}, "y"), "to", onnx::TensorProto::FLOAT);
    return m;
  };
  const std::map<std::string, std::vector<double>> expected{{"Equal", {0, 1, 0, 0}},
                                                            {"Less", {1, 0, 0, 0}},
                                                            {"LessOrEqual", {1, 1, 0, 0}},
                                                            {"Greater", {0, 0, 1, 1}},
                                                            {"GreaterOrEqual", {0, 1, 1, 1}}};
  for (const auto& [op, values] : expected)
    for (const bool of_real : {false, true})
      for (const bool negated : {false, true})
        for (const bool wide : {false, true}) {
          const auto m = mask(op, of_real, negated, wide);
          auto wanted = values;
          for (auto& x : wanted)
            x = negated ? 1 - x : x;
          BOOST_TEST(m.output({0, 1, 2, 9}) == wanted, boost::test_tools::per_element());
        }
}

// The masks of nn.TransformerEncoder: Where(x == 0, -infinity, 0), and products of truth values.
BOOST_AUTO_TEST_CASE(masks_by_where) {
  token_model m;
  m.whole("0", {}, {0});
  m.whole("2", {}, {2});
  m.node("Equal", {"x", "0"}, "pads");
  m.node("Greater", {"x", "2"}, "large");
  m.node("Or", {"pads", "large"}, "masked");
  m.weight("low", {}, 1);
  m.weight("none", {}, 1);
  m.proto.mutable_graph()->mutable_initializer(3)->set_float_data(0, -9);
  m.node("Where", {"masked", "low", "none"}, "y");
  BOOST_TEST(m.output({0, 1, 2, 3}) == std::vector<double>({-9, 1, 1, -9}),
             boost::test_tools::per_element());
}

// Whole numbers that are computed from tokens can become real numbers, and truth values can become
// whole numbers.
BOOST_AUTO_TEST_CASE(computed_tokens_become_real_numbers) {
  token_model m;
  m.whole("1", {}, {1});
  m.node("Equal", {"x", "1"}, "is 1");
  integer(m.node("Cast", {"is 1"}, "one"), "to", onnx::TensorProto::INT64);
  m.node("Add", {"x", "one"}, "sum");
  m.node("Min", {"sum", "x"}, "least");
  m.node("Sub", {"sum", "least"}, "difference");
  integer(m.node("Cast", {"difference"}, "y"), "to", onnx::TensorProto::FLOAT);
  BOOST_TEST(m.output({0, 1, 2, 1}) == std::vector<double>({0, 1, 0, 1}),
             boost::test_tools::per_element());
}

// Column 0 selects rows of a table; column 1 is a number.
BOOST_AUTO_TEST_CASE(tables_with_numbers) {
  token_model m;
  m.whole("0", {}, {0});
  m.whole("1", {1}, {1});
  m.whole("3", {1}, {3});
  integer(m.node("Gather", {"x", "0"}, "token"), "axis", 1);
  m.node("Gather", {"table", "token"}, "row");
  m.node("Slice", {"x", "1", "3", "1"}, "numbers");
  integer(m.node("Cast", {"numbers"}, "real"), "to", onnx::TensorProto::FLOAT);
  m.node("Add", {"row", "real"}, "y");
  BOOST_TEST(onnx_table_rows(m.parsed(), "x") == 0u);
  BOOST_TEST(m.output({2, -7, 220, 0}) == std::vector<double>({4 - 7, 5 + 220}),
             boost::test_tools::per_element());
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
                      "model's input, and stays whole numbers; this operator cannot read them"));
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
