// Loops and branches in ONNX models. When a model is read, its loops are unrolled, and one branch
// of each condition is chosen.

#include "kernels/devices/graph_session.hpp"
#include "kernels/graph/gradients.hpp"
#include "kernels/graph/operations.hpp"
#include "tests/actors/model/onnx/small_model.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

BOOST_AUTO_TEST_SUITE(onnx_loops)

using namespace troupe;
using namespace troupe::test;

namespace {

void add_node(onnx::GraphProto& to, const std::string& op, const std::vector<std::string>& inputs,
              const std::string& output) {
  auto& node = *to.add_node();
  node.set_op_type(op);
  for (const auto& input : inputs)
    node.add_input(input);
  node.add_output(output);
}

/// A model with a loop that computes state = 2 * state + x and starts from x. Its second output is
/// the state before each step.
struct doubling : small_model {
  onnx::NodeProto* loop;
  onnx::GraphProto* body;

  explicit doubling(std::int64_t steps) {
    whole("steps", {}, {steps});
    whole("last", {}, {2});
    loop = &node("Loop", {"steps", "", "x"}, "state");
    loop->add_output("states");
    body = &add_body(*loop, "body");
    for (const auto* input : {"i", "condition", "before"})
      body->add_input()->set_name(input);
    auto& two = *body->add_initializer();
    two.set_name("two");
    two.set_data_type(onnx::TensorProto::FLOAT);
    two.add_float_data(2);
    add_node(*body, "Mul", {"before", "two"}, "double");
    add_node(*body, "Add", {"double", "x"}, "after");
    add_node(*body, "Identity", {"before"}, "seen");
    for (const auto* output : {"condition", "after", "seen"})
      body->add_output()->set_name(output);
  }

  void output(const std::string& name) { proto.mutable_graph()->mutable_output(0)->set_name(name); }

  onnx_output imported(graph& g) const {
    return import_onnx(parsed(), g, {g.placeholder("x", {shape::batch, 4})}).at(0);
  }

  /// The output for the samples (1, 2, 3, 4) and (5, 6, 7, 8).
  std::vector<double> values() const {
    graph g;
    const auto y = imported(g).x;
    graph_session<double> s{g};
    const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
    const auto result = s.run(std::array{session_feed<double>{g.find("x"), x}}, std::array{y})[0];
    return {result.begin(), result.end()};
  }
};

} // namespace

BOOST_AUTO_TEST_CASE(loops_are_unrolled) {
  doubling m{3};
  m.output("state");
  BOOST_TEST(m.values() == std::vector<double>({15, 30, 45, 60, 75, 90, 105, 120}),
             boost::test_tools::per_element());
  m.output("states"); // shape (steps, batch, 4)
  graph g;
  const auto y = m.imported(g);
  BOOST_TEST(y.batch_at == 1u);
  BOOST_TEST(to_string(y.x.shape()) == "(batch, 3, 4)");
  BOOST_TEST(m.values() == std::vector<double>({1, 2, 3, 4, 3,  6,  9,  12, 7,  14, 21, 28,
                                                5, 6, 7, 8, 15, 18, 21, 24, 35, 42, 49, 56}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(loops_end_with_their_condition) {
  doubling m{100};
  m.output("state");
  add_node(*m.body, "Less", {"i", "last"}, "goes on");
  m.body->mutable_output(0)->set_name("goes on"); // i = 0, 1, 2
  BOOST_TEST(m.values()[0] == 15);
  m.loop->set_input(0, ""); // without a limit
  BOOST_TEST(m.values()[0] == 15);
}

BOOST_AUTO_TEST_CASE(loops_without_steps) {
  doubling m{0};
  m.output("state");
  BOOST_TEST(m.values()[7] == 8);
  m.output("states");
  BOOST_TEST(contains(m.error(), "node \"the state\" (Loop): the loop has no steps"));
}

BOOST_AUTO_TEST_CASE(loops_that_cannot_be_unrolled) {
  doubling m{2};
  m.output("state");
  m.body->mutable_output(0)->set_name("after");
  BOOST_TEST(contains(m.error(), "the condition depends on the input of the model"));
  m.loop->set_input(0, "x");
  BOOST_TEST(contains(m.error(), "the number of steps must be a constant"));
  doubling endless{2};
  endless.output("state");
  endless.loop->set_input(0, "");
  BOOST_TEST(contains(endless.error(), "the loops of the model become more than 131072 nodes"));
  doubling long_one{1'000'000};
  long_one.output("state");
  BOOST_TEST(contains(long_one.error(), "the loops of the model become more than 131072 nodes"));
  doubling short_one{2};
  short_one.output("state");
  short_one.body->mutable_output()->RemoveLast();
  short_one.body->mutable_output()->RemoveLast();
  BOOST_TEST(contains(short_one.error(), "its body has 1 outputs; expected at least 2"));
  doubling other{2};
  other.output("state");
  other.body->mutable_input()->RemoveLast();
  other.body->mutable_node(0)->set_input(0, "x");
  other.body->mutable_node(2)->set_input(0, "x");
  BOOST_TEST(contains(other.error(), "its body has 2 inputs, and 3 are given"));
}

BOOST_AUTO_TEST_CASE(names_in_bodies) {
  doubling m{2};
  m.output("state");
  m.body->mutable_node(0)->set_input(1, "nothing");
  BOOST_TEST(contains(m.error(), "reads \"nothing\", which no node computes"));
  m.body->mutable_node(0)->set_input(1, "two");
  m.body->mutable_input(2)->set_name("x");
  BOOST_TEST(contains(m.error(), "two tensors are called \"x\", one of them an input of a body"));
  // Nodes outside a loop cannot read names that its body defines.
  doubling outside{2};
  outside.output("y");
  outside.node("Relu", {"after"}, "y");
  BOOST_TEST(contains(outside.error(), "reads \"after\", which no node computes"));
}

BOOST_AUTO_TEST_CASE(weights_of_loops) {
  doubling m{2};
  m.output("state");
  m.weight("w", {4, 4}, 16);
  m.body->mutable_node(0)->set_op_type("MatMul");
  m.body->mutable_node(0)->set_input(1, "w");
  const auto model = m.parsed();
  BOOST_TEST_REQUIRE(model.weights().size() == 1u);
  BOOST_TEST(model.weights()[0].stays == "");
  const auto bytes = model.structure();
  const auto structure = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), "structure");
  BOOST_TEST(structure.weights().size() == 1u);
  // The loop passes the weight from step to step, as part of its state.
  m.loop->add_input("w");
  m.loop->clear_output();
  m.loop->add_output("state");
  m.loop->add_output("");
  m.loop->add_output("states");
  m.body->add_input()->set_name("matrix");
  m.body->mutable_node(0)->set_input(1, "matrix");
  m.body->mutable_output()->RemoveLast();
  m.body->add_output()->set_name("matrix");
  m.body->add_output()->set_name("seen");
  BOOST_TEST_REQUIRE(m.parsed().weights().size() == 1u);
  BOOST_TEST(m.parsed().weights()[0].stays == "");
  BOOST_TEST(m.error() == "(no error)");
  auto& inside = *m.body->add_initializer();
  inside = m.proto.graph().initializer(2);
  inside.set_name("inside");
  m.body->mutable_node(0)->set_input(1, "inside");
  BOOST_TEST(contains(m.error(), "the weight \"inside\" is inside the body of a loop or branch"));
}

// Unrolled loops share their weights: h = tanh(x W + (h R + rb)) in each step, starting from h0.
BOOST_AUTO_TEST_CASE(weights_of_later_steps) {
  small_model m;
  m.whole("steps", {}, {3});
  m.weight("h0", {1, 4}, 4);
  m.weight("W", {4, 4}, 16);
  m.weight("R", {4, 4}, 16);
  m.weight("rb", {4}, 4);
  auto& body = add_body(m.node("Loop", {"steps", "", "h0"}, "y"), "body");
  for (const auto* input : {"i", "condition", "h"})
    body.add_input()->set_name(input);
  add_node(body, "MatMul", {"h", "R"}, "hR");
  add_node(body, "Add", {"hR", "rb"}, "recurrent");
  add_node(body, "MatMul", {"x", "W"}, "xW");
  add_node(body, "Add", {"xW", "recurrent"}, "sum");
  add_node(body, "Tanh", {"sum"}, "next");
  for (const auto* output : {"condition", "next"})
    body.add_output()->set_name(output);
  const auto model = m.parsed();
  BOOST_TEST_REQUIRE(model.weights().size() == 4u);
  for (const auto& x : model.weights())
    BOOST_TEST(x.stays.empty() == (x.name != "h0"), x.name);
}

namespace {

/// A model with a branch whose body computes y = f(x).
template <class F>
small_model branched(F f) {
  small_model m;
  m.proto.mutable_opset_import(0)->set_version(17);
  m.whole("one", {}, {1});
  m.whole("yes", {}, {1});
  m.node("Equal", {"one", "yes"}, "true");
  m.weight("ratio", {}, 1);
  m.proto.mutable_graph()->mutable_initializer(2)->set_float_data(0, 0.5F);
  auto& node = m.node("If", {"true"}, "y");
  auto& then_branch = add_body(node, "then_branch");
  f(m, then_branch);
  then_branch.add_output()->set_name("then");
  auto& no = add_body(node, "else_branch");
  add_node(no, "Identity", {"x"}, "same");
  no.add_output()->set_name("same");
  return m;
}

/// The ids of the masks of all dropouts in a graph.
std::set<std::uint64_t> masks_of(const graph& g) {
  std::set<std::uint64_t> result;
  for (const auto& node : g.nodes())
    if (node.op == operation::dropout)
      result.insert(node.key);
  return result;
}

} // namespace

BOOST_AUTO_TEST_CASE(dropout_in_a_branch) {
  const auto m = branched([](small_model&, onnx::GraphProto& body) {
    add_node(body, "Dropout", {"x", "ratio", "true"}, "then");
  });
  BOOST_TEST(differs_in_training(m.parsed()));
  graph g;
  import_onnx(m.parsed(), g, {g.placeholder("x", {shape::batch, 4})}, true);
  BOOST_TEST(masks_of(g).size() == 1u);
}

BOOST_AUTO_TEST_CASE(each_step_has_its_own_dropout) {
  doubling m{3};
  m.output("state");
  m.whole("true", {}, {1});
  m.weight("ratio", {}, 1);
  m.proto.mutable_graph()
    ->mutable_initializer(m.proto.graph().initializer_size() - 1)
    ->set_float_data(0, 0.5F);
  auto& drop = *m.body->mutable_node(1);
  drop.set_op_type("Dropout");
  drop.clear_input();
  for (const auto* input : {"double", "ratio", "true"})
    drop.add_input(input);
  BOOST_TEST(differs_in_training(m.parsed()));
  graph g;
  import_onnx(m.parsed(), g, {g.placeholder("x", {shape::batch, 4})}, true);
  BOOST_TEST(masks_of(g).size() == 3u);
}

BOOST_AUTO_TEST_CASE(marks_of_exporters_in_a_branch) {
  const auto m = branched([](small_model& outside, onnx::GraphProto& body) {
    for (const auto* name : {"scale", "shift", "mean", "variance"})
      outside.weight(name, {4}, 4);
    add_node(body, "BatchNormalization", {"x", "scale", "shift", "mean", "variance"}, "then");
    mark(*body.mutable_node(0), "pkg.torch.onnx.fx_node",
         "aten._native_batch_norm_legit_functional.default");
  });
  const auto model = m.parsed();
  BOOST_TEST(differs_in_training(model));
  for (const auto& x : model.weights())
    BOOST_TEST(x.decay.has_value() == (x.name == "mean" || x.name == "variance"), x.name);
}

BOOST_AUTO_TEST_CASE(branches_by_the_size_of_the_batch) {
  const auto model = [](const std::string& op, const std::string& left, const std::string& right,
                        std::int64_t number) {
    small_model m;
    m.whole("0", {}, {0});
    m.whole("number", {}, {number});
    m.node("Shape", {"x"}, "shape");
    m.node("Gather", {"shape", "0"}, "batch");
    m.node("Div", {"number", "batch"}, "unknown");
    m.node("Add", {"batch", "batch"}, "twice");
    m.node(op, {left, right}, "condition");
    auto& node = m.node("If", {"condition"}, "y");
    auto& yes = add_body(node, "then_branch");
    add_node(yes, "Neg", {"x"}, "negative");
    yes.add_output()->set_name("negative");
    auto& no = add_body(node, "else_branch");
    add_node(no, "Identity", {"x"}, "same");
    no.add_output()->set_name("same");
    return m;
  };
  const auto holds = [&](const std::string& op, const std::string& left, const std::string& right,
                         std::int64_t number) {
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 4});
    return import_onnx(model(op, left, right, number).parsed(), g, {x}).at(0).x != x;
  };
  BOOST_TEST(!holds("Equal", "batch", "number", 0));
  BOOST_TEST(!holds("Equal", "number", "batch", -1));
  BOOST_TEST(holds("Greater", "batch", "number", 0));
  BOOST_TEST(!holds("Less", "batch", "number", -3));
  BOOST_TEST(holds("Less", "number", "batch", 0));
  BOOST_TEST(holds("Less", "batch", "twice", 1));
  BOOST_TEST(holds("Equal", "batch", "batch", 1));
  const std::string unknown = "the result depends on the size of the batch";
  for (const std::string op : {"Equal", "Less", "Greater"})
    for (const std::string name : {"batch", "twice", "unknown"}) {
      BOOST_TEST(contains(model(op, name, "number", 3).error(), "(" + op + "): " + unknown));
      BOOST_TEST(contains(model(op, "number", name, 3).error(), "(" + op + "): " + unknown));
    }
  BOOST_TEST(contains(model("Equal", "unknown", "number", -1).error(), unknown));
  BOOST_TEST(contains(model("Less", "x", "batch", 0).error(),
                      "(Less): the size of the batch becomes a real number"));
  auto truth = model("Cast", "unknown", "", 3);
  auto& cast = *truth.proto.mutable_graph()->mutable_node(4);
  cast.mutable_input()->RemoveLast();
  integer(cast, "to", onnx::TensorProto::BOOL);
  BOOST_TEST(contains(truth.error(), "(Cast): the size of the batch becomes a truth value"));
  for (const std::string steps : {"batch", "unknown"}) {
    auto repeated = model("Equal", "batch", "batch", 3);
    auto& graph = *repeated.proto.mutable_graph();
    graph.mutable_node()->RemoveLast();
    auto& body = add_body(repeated.node("Loop", {steps, "", "x"}, "y"), "body");
    for (const auto* input : {"i", "go on", "before"})
      body.add_input()->set_name(input);
    add_node(body, "Neg", {"before"}, "after");
    for (const auto* output : {"go on", "after"})
      body.add_output()->set_name(output);
    BOOST_TEST(
      contains(repeated.error(), "(Loop): the number of steps depends on the size of the batch"));
  }
}

// Each constant that is computed in a loop is small, but all of them together are limited.
BOOST_AUTO_TEST_CASE(constants_of_loops_are_bounded) {
  constexpr std::int64_t width = 60'000;
  const auto error = [](std::int64_t steps, const std::string& output, const std::string& op,
                        std::int64_t resized = 0) {
    small_model m;
    m.whole("steps", {}, {steps});
    m.whole("0", {}, {0});
    m.whole("1", {}, {1});
    m.whole("width", {}, {width});
    auto& loop = m.node("Loop", {"steps", "", "x"}, "last");
    loop.add_output("all");
    auto& body = add_body(loop, "body");
    for (const auto* input : {"i", "go on", "state"})
      body.add_input()->set_name(input);
    if (op == "Range") {
      add_node(body, "Range", {"0", "width", "1"}, "numbers");
    } else {
      auto& numbers = *body.add_initializer();
      numbers.set_name("of the file");
      numbers.set_data_type(onnx::TensorProto::FLOAT);
      numbers.add_dims(width);
      for (std::int64_t i = 0; i < width; ++i)
        numbers.add_float_data(static_cast<float>(i));
      add_node(body, op, {"of the file"}, "numbers");
      if (op == "Max")
        body.mutable_node(0)->add_input("of the file");
    }
    for (const auto* name : {"go on", "state", "numbers"})
      body.add_output()->set_name(name);
    if (resized > 0) {
      m.whole("size", {2}, {1, resized});
      auto& node = m.node("Resize", {"last", "", "", "size"}, "y");
      auto& mode = *node.add_attribute();
      mode.set_name("mode");
      mode.set_type(onnx::AttributeProto::STRING);
      mode.set_s("linear");
    } else {
      m.node("Identity", {output}, "y");
    }
    return m.error(3000);
  };
  const std::string limit =
    "the constants that are computed when the model is read have more than 67108864 elements in "
    "all";
  BOOST_TEST(contains(error(1200, "all", "Identity"), "node \"the last\" (Loop): " + limit));
  BOOST_TEST(error(1200, "last", "Identity") == "(no error)");
  BOOST_TEST(
    contains(error(1200, "last", "Range"), "node that makes \"numbers\" (Range): " + limit));
  BOOST_TEST(contains(error(1200, "last", "Max"), "node that makes \"numbers\" (Max): " + limit));
  BOOST_TEST(error(1100, "last", "Range") == "(no error)");
  BOOST_TEST(contains(error(1100, "last", "Range", 200000), "node \"the y\" (Resize): " + limit));
}

// A constant that many nodes read exists only once in the graph.
BOOST_AUTO_TEST_CASE(constants_with_many_readers) {
  doubling m{50};
  m.output("state");
  auto& tensor = *m.body->mutable_initializer(0);
  tensor.add_dims(4);
  for (int i = 0; i < 3; ++i)
    tensor.add_float_data(2);
  graph g;
  m.imported(g);
  BOOST_TEST(
    std::ranges::count_if(g.nodes(), [](const auto& node) { return node.values.size() == 4; })
    == 1);
  tensor.set_float_data(1, 1);
  BOOST_TEST(m.values()[1] == 2 * 51);
}

BOOST_AUTO_TEST_CASE(branches_are_decided) {
  for (const bool first : {true, false}) {
    small_model m;
    m.whole("rank", {}, {first ? 2 : 3});
    m.whole("two", {}, {2});
    m.node("Equal", {"rank", "two"}, "is matrix");
    auto& node = m.node("If", {"is matrix"}, "y");
    auto& yes = add_body(node, "then_branch");
    add_node(yes, "Neg", {"x"}, "negative");
    yes.add_output()->set_name("negative");
    auto& no = add_body(node, "else_branch");
    add_node(no, "Identity", {"x"}, "same");
    no.add_output()->set_name("same");
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 4});
    const auto y = import_onnx(m.parsed(), g, {x}).at(0).x;
    BOOST_TEST((y == x) == !first);
    node.set_input(0, "x");
    BOOST_TEST(contains(m.error(), "the condition depends on the input of the model"));
  }
}

// tf2onnx computes the merged batch dimension of an Einstein sum as a product of extents.
BOOST_AUTO_TEST_CASE(products_of_extents) {
  small_model m;
  m.reshape("x", {0, 2, 2}, "apart");
  m.node("Shape", {"apart"}, "dims");
  m.whole("first", {2}, {0, 1});
  m.node("Gather", {"dims", "first"}, "leading");
  m.node("ReduceProd", {"leading"}, "product");
  m.whole("open", {1}, {-1});
  auto& join = m.node("Concat", {"product", "open"}, "merged dims");
  integer(join, "axis", 0);
  m.node("Reshape", {"apart", "merged dims"}, "merged"); // shape (2 batch, 2)
  m.node("Relu", {"merged"}, "positive");
  m.node("Reshape", {"positive", "dims"}, "y");
  BOOST_TEST(m.error() == "(no error)");
  for (const auto& [op, value] : {std::pair{"ReduceSum", 6}, {"ReduceMax", 3}, {"ReduceMin", 1}}) {
    small_model other;
    other.whole("numbers", {3}, {1, 2, 3});
    other.node(op, {"numbers"}, "one");
    other.whole("extents", {1}, {value});
    other.node("Equal", {"one", "extents"}, "is");
    auto& cast = other.node("Cast", {"is"}, "real");
    integer(cast, "to", onnx::TensorProto::FLOAT);
    other.node("Add", {"x", "real"}, "y");
    graph g;
    const auto x = g.placeholder("x", {shape::batch, 4});
    const auto y = import_onnx(other.parsed(), g, {x}).at(0).x;
    graph_session<double> s{g};
    const std::vector<double> zeros(4, 0);
    BOOST_TEST(s.run(std::array{session_feed<double>{x, zeros}}, std::array{y})[0][0] == 1, op);
  }
}

namespace {

/// The output for one sample (1, 2, 3, 4).
std::vector<double> output_of(const small_model& m) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto y = import_onnx(m.parsed(), g, {x}).at(0).x;
  graph_session<double> s{g};
  const std::vector<double> features{1, 2, 3, 4};
  const auto result = s.run(std::array{session_feed<double>{x, features}}, std::array{y})[0];
  return {result.begin(), result.end()};
}

} // namespace

BOOST_AUTO_TEST_CASE(reversed_sequences) {
  const auto model = [](const std::vector<std::int64_t>& lengths) {
    small_model m;
    m.reshape("x", {0, 4, 1}, "steps");
    m.whole("lengths", {static_cast<std::int64_t>(lengths.size())}, lengths);
    auto& node = m.node("ReverseSequence", {"steps", "lengths"}, "turned");
    integer(node, "time_axis", 1);
    integer(node, "batch_axis", 0);
    m.reshape("turned", {0, 4}, "y");
    return m;
  };
  BOOST_TEST(output_of(model({4})) == std::vector<double>({4, 3, 2, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(output_of(model({3, 3})) == std::vector<double>({3, 2, 1, 4}),
             boost::test_tools::per_element());
  BOOST_TEST(contains(model({3, 4}).error(), "the sequences have different lengths"));
  BOOST_TEST(
    contains(model({5}).error(), "the first 5 of 4 elements of axis 1 cannot be reversed"));
}

// Keras computes its causal mask for each sample, but all samples get the same mask. So the mask is
// a constant.
BOOST_AUTO_TEST_CASE(constants_that_are_the_same_for_each_sample) {
  small_model m;
  m.whole("row", {1, 4}, {1, 0, 0, 1});
  m.whole("0", {}, {0});
  m.node("Shape", {"x"}, "dims");
  m.node("ConstantOfShape", {"dims"}, "zeros"); // real
  integer(m.node("Cast", {"zeros"}, "numbers"), "to", onnx::TensorProto::INT64);
  m.node("Add", {"numbers", "row"}, "rows"); // shape (batch, 4)
  m.node("Transpose", {"rows"}, "columns");
  m.node("Transpose", {"columns"}, "again");
  integer(m.node("Cast", {"again"}, "mask"), "to", onnx::TensorProto::BOOL);
  m.node("Neg", {"x"}, "negative");
  m.node("Where", {"mask", "x", "negative"}, "y");
  BOOST_TEST(output_of(m) == std::vector<double>({1, -2, -3, 4}), boost::test_tools::per_element());
  integer(m.node("Cast", {"mask"}, "real"), "to", onnx::TensorProto::FLOAT);
  m.proto.mutable_graph()->mutable_output(0)->set_name("real");
  BOOST_TEST(output_of(m) == std::vector<double>({1, 0, 0, 1}), boost::test_tools::per_element());
}

namespace {

/// A model with an LSTM in the form of tf2onnx. Nodes compute its initial state, which is zero for
/// each sample. All elements in the second half of the bias are `second`.
small_model recurrent(float second, const std::string& producer) {
  small_model m;
  m.proto.set_producer_name(producer);
  m.reshape("x", {0, 2, 2}, "steps");
  auto& turn = *m.node("Transpose", {"steps"}, "time first").add_attribute();
  turn.set_name("perm");
  for (const int axis : {1, 0, 2})
    turn.add_ints(axis);
  m.weight("w", {1, 8, 2}, 16);
  m.weight("r", {1, 8, 2}, 16);
  m.weight("b", {1, 16}, 8);
  for (int i = 0; i < 8; ++i)
    m.proto.mutable_graph()
      ->mutable_initializer(m.proto.graph().initializer_size() - 1)
      ->add_float_data(second);
  m.node("Shape", {"x"}, "dims");
  m.whole("0", {1}, {0});
  m.whole("1", {1}, {1});
  m.whole("2", {1}, {2});
  m.node("Slice", {"dims", "0", "1"}, "batch");
  integer(m.node("Concat", {"batch", "2"}, "state dims"), "axis", 0);
  m.node("ConstantOfShape", {"state dims"}, "zeros");
  m.node("Unsqueeze", {"zeros", "0"}, "state");
  auto& cells = m.node("LSTM", {"time first", "w", "r", "b", "", "state", "state"}, "all");
  cells.add_output("y");
  integer(cells, "hidden_size", 2);
  return m;
}

std::vector<double> bias_gradient(const onnx_model& model) {
  graph g;
  const auto x = g.placeholder("x", {shape::batch, 4});
  const auto y = import_onnx(model, g, {x}).at(0).x;
  const auto b = g.find("b");
  const auto db = gradients(sum(y), std::array{b})[0];
  graph_session<double> s{g};
  std::ranges::copy(model.values(g.parameters()), s.variables().begin());
  const std::vector<double> features{1, -2, 3, 0.5};
  const auto result = s.run(std::array{session_feed<double>{x, features}}, std::array{db})[0];
  return {result.begin(), result.end()};
}

} // namespace

BOOST_AUTO_TEST_CASE(second_biases_of_keras_stay_zero) {
  for (const auto type : real_types) {
    auto m = recurrent(0, "tf2onnx");
    m.convert_weights(type);
    const auto one = bias_gradient(m.parsed());
    BOOST_TEST_REQUIRE(one.size() == 16u);
    BOOST_TEST(std::all_of(one.begin() + 8, one.end(), [](double x) { return x == 0; }), type);
    BOOST_TEST(std::any_of(one.begin(), one.begin() + 8, [](double x) { return x != 0; }));
  }
  auto inside = recurrent(0, "tf2onnx");
  auto cells = inside.proto.graph().node(inside.proto.graph().node_size() - 1);
  inside.proto.mutable_graph()->mutable_node()->RemoveLast();
  inside.node("Equal", {"1", "1"}, "true");
  cells.set_output(0, "all of a branch");
  cells.set_output(1, "last of a branch");
  auto& branch = inside.node("If", {"true"}, "y");
  for (const auto* name : {"then_branch", "else_branch"}) {
    auto& body = add_body(branch, name);
    *body.add_node() = cells;
    body.add_output()->set_name("last of a branch");
  }
  const auto in_a_branch = bias_gradient(inside.parsed());
  BOOST_TEST_REQUIRE(in_a_branch.size() == 16u);
  BOOST_TEST(
    std::all_of(in_a_branch.begin() + 8, in_a_branch.end(), [](double x) { return x == 0; }));
  // A process of the cluster may have only the structure of the model, without weights. It must
  // build the same graph as the process that has the weights.
  const auto whole = recurrent(0, "tf2onnx").parsed();
  const auto bytes = whole.structure();
  const auto structure = onnx_model::parse_structure(std::as_bytes(std::span{bytes}), "structure");
  graph a;
  graph b;
  import_onnx(whole, a, {a.placeholder("x", {shape::batch, 4})});
  import_onnx(structure, b, {b.placeholder("x", {shape::batch, 4})});
  BOOST_TEST(to_string(a) == to_string(b));
  for (const auto& m : {recurrent(0, "pytorch"), recurrent(0.5, "tf2onnx")}) {
    const auto both = bias_gradient(m.parsed());
    BOOST_TEST(std::equal(both.begin(), both.begin() + 8, both.begin() + 8, both.end()));
    BOOST_TEST(std::any_of(both.begin() + 8, both.end(), [](double x) { return x != 0; }));
  }
}

BOOST_AUTO_TEST_SUITE_END()
