// Runs ONNX's own tests of its operators (Debian's libonnx-testdata). A test has a model of one or
// a few nodes, inputs, and expected outputs. If troupe has the operators of a test, it must give
// these outputs, or refuse the model with an error that names the node.

#include "actors/model/onnx/constant.hpp"
#include "actors/model/onnx/importer.hpp"
#include "kernels/devices/graph_session.hpp"
#include "kernels/error.hpp"
#include "kernels/formats/file.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/skip.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(onnx_nodes)

using namespace troupe;

namespace {

namespace fs = std::filesystem;

fs::path test_data() {
  const char* folder = std::getenv("TROUPE_ONNX_TESTS");
  return folder ? folder : "/usr/share/libonnx-testdata/data";
}

template <class Message>
Message load(const fs::path& path) {
  Message result;
  const auto bytes = read_file(path);
  BOOST_REQUIRE(result.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return result;
}

struct example {
  onnx::ModelProto model;
  std::vector<onnx::TensorProto> inputs;
  std::vector<onnx::TensorProto> outputs;
};

std::vector<onnx::TensorProto> tensors(const fs::path& folder, const std::string& what) {
  std::vector<onnx::TensorProto> result;
  for (int i = 0;; ++i) {
    const auto path = folder / (what + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(path))
      return result;
    result.push_back(load<onnx::TensorProto>(path));
  }
}

/// How the inputs of a test are passed: with or without a batch dimension, and which of them as
/// constants of the model.
struct way {
  enum class batch { none, first, all } has_batch = batch::none;
  enum class known { nothing, integers, others, all } are_known = known::nothing;
};

bool is_real(const onnx::TensorProto& x) {
  using onnx::TensorProto;
  const auto type = x.data_type();
  return type == TensorProto::FLOAT || type == TensorProto::DOUBLE || type == TensorProto::FLOAT16
    || type == TensorProto::BFLOAT16;
}

/// The elements of a tensor after dimension `axis` is moved to the front.
std::vector<double> moved(const onnx_constant& c, std::size_t axis) {
  std::size_t before = 1;
  std::size_t behind = 1;
  for (std::size_t i = 0; i < c.dims.size(); ++i)
    (i < axis ? before : behind) *= i == axis ? 1 : static_cast<std::size_t>(c.dims[i]);
  const auto extent = static_cast<std::size_t>(c.dims[axis]);
  std::vector<double> result;
  for (std::size_t k = 0; k < extent; ++k)
    for (std::size_t i = 0; i < before; ++i)
      for (std::size_t j = 0; j < behind; ++j)
        result.push_back(c.at((i * extent + k) * behind + j));
  return result;
}

/// The batch dimension of the first input. It is not the first one in recurrent operators, where
/// time comes first.
std::size_t batch_axis(const example& x) {
  const auto& node = x.model.graph().node(0);
  if (node.op_type() != "RNN" && node.op_type() != "LSTM" && node.op_type() != "GRU")
    return 0;
  return std::ranges::any_of(
           node.attribute(),
           [](const onnx::AttributeProto& a) { return a.name() == "layout" && a.i() == 1; })
    ? 0
    : 1;
}

/// The computed and the expected values of each output.
using computed = std::vector<std::pair<std::vector<double>, std::vector<double>>>;

void prepend(onnx::ModelProto& model, const onnx::NodeProto& first) {
  const auto nodes = model.graph().node();
  model.mutable_graph()->clear_node();
  *model.mutable_graph()->add_node() = first;
  model.mutable_graph()->mutable_node()->MergeFrom(nodes);
}

void prepend_constant(onnx::ModelProto& model, const std::string& name,
                      const onnx::TensorProto& value) {
  onnx::NodeProto first;
  first.set_op_type("Constant");
  first.add_output(name);
  auto& attribute = *first.add_attribute();
  attribute.set_name("value");
  *attribute.mutable_t() = value;
  prepend(model, first);
}

/// Changes an input of truth values to an input of numbers, which the model converts itself,
/// because troupe's inputs are numbers.
void make_truth(onnx::ModelProto& model, onnx::ValueInfoProto& port) {
  onnx::NodeProto first;
  first.set_op_type("Cast");
  first.add_input("number " + port.name());
  first.add_output(port.name());
  auto& attribute = *first.add_attribute();
  attribute.set_name("to");
  attribute.set_i(onnx::TensorProto::BOOL);
  port.set_name(first.input(0));
  port.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  prepend(model, first);
}

/// Computes the outputs of a test.
/// @throws input_error if the model is refused
template <class T>
computed compute(const example& x, const way& how) {
  auto proto = x.model;
  graph g;
  std::vector<expression> inputs;
  std::vector<std::pair<expression, onnx_constant>> fed;
  for (std::size_t i = 0; i < x.inputs.size(); ++i) {
    const auto& tensor = x.inputs[i];
    auto& port = *proto.mutable_graph()->mutable_input(static_cast<int>(i));
    const bool constant = (how.are_known == way::known::integers && !is_real(tensor))
      || (how.are_known == way::known::others && i > 0);
    if (how.are_known == way::known::all) {
      prepend_constant(proto, port.name(), tensor);
      // An unused input becomes a float, which troupe accepts as an input.
      port.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
      port.set_name("unused " + std::to_string(i));
      inputs.push_back(g.placeholder(port.name(), {}));
      continue;
    }
    if (constant) {
      auto& initializer = *proto.mutable_graph()->add_initializer();
      initializer = tensor;
      initializer.set_name(port.name());
      continue;
    }
    check_onnx_tensor(tensor, "input", false);
    auto c = read_onnx_tensor(tensor);
    if (c.type == onnx_constant::kind::boolean)
      make_truth(proto, port);
    auto dims = c.dims;
    const auto at = i == 0 ? batch_axis(x) : 0;
    const bool same =
      !dims.empty() && !x.inputs[0].dims().empty() && dims[0] == x.inputs[0].dims(0);
    if (at < dims.size()
        && ((how.has_batch == way::batch::first && i == 0)
            || (how.has_batch == way::batch::all && same))) {
      c.values = moved(c, at);
      std::rotate(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(at),
                  dims.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      dims[0] = shape::batch;
      if (at == 1) {
        auto nodes = proto.graph().node();
        auto& first = *nodes.Mutable(0);
        first.set_input(0, "time first");
        proto.mutable_graph()->clear_node();
        auto& swap = *proto.mutable_graph()->add_node();
        swap.set_op_type("Transpose");
        swap.add_input(port.name());
        swap.add_output("time first");
        auto& perm = *swap.add_attribute();
        perm.set_name("perm");
        for (const int axis : {1, 0, 2})
          perm.add_ints(axis);
        proto.mutable_graph()->mutable_node()->MergeFrom(nodes);
      }
    }
    const auto type = c.type == onnx_constant::kind::integer ? dtype::int32 : dtype::float32;
    inputs.push_back(g.placeholder("input " + std::to_string(i), shape{dims}, type));
    fed.emplace_back(inputs.back(), std::move(c));
  }
  const auto bytes = proto.SerializeAsString();
  const auto model = onnx_model::parse(std::as_bytes(std::span{bytes}), "model");
  const auto outputs = import_onnx(model, g, inputs);
  std::vector<std::vector<T>> reals(fed.size());
  std::vector<std::vector<std::int32_t>> wholes(fed.size());
  std::vector<session_feed<T>> feeds;
  for (std::size_t i = 0; i < fed.size(); ++i) {
    const auto& [where, c] = fed[i];
    reals[i].assign(c.values.begin(), c.values.end());
    for (const auto value : c.values)
      wholes[i].push_back(static_cast<std::int32_t>(value));
    if (where.node().type == dtype::int32)
      feeds.emplace_back(where, std::span<const std::int32_t>{wholes[i]});
    else
      feeds.emplace_back(where, std::span<const T>{reals[i]});
  }
  graph_session<T> session{g};
  const auto weights = model.values(g.parameters());
  std::ranges::copy(weights, session.variables().begin());
  std::vector<expression> fetches;
  for (const auto& output : outputs)
    fetches.push_back(output.x);
  const auto values = session.run(feeds, fetches);
  computed result;
  for (std::size_t i = 0; i < x.outputs.size(); ++i) {
    check_onnx_tensor(x.outputs[i], "output", false);
    const auto expected = read_onnx_tensor(x.outputs[i]);
    result.emplace_back(std::vector<double>(values[i].begin(), values[i].end()),
                        expected.dims.empty() ? expected.values
                                              : moved(expected, outputs[i].batch_at));
  }
  return result;
}

/// How a test is run, read from the file "settings" in its folder. Without this file, values are
/// compared as ONNX's own runner does: to 1e-3 of the value, with a small tolerance near 0.
struct settings {
  double relative = 1e-3;
  double absolute = 1e-6;
  /// False: inputs are never passed as constants of the model.
  bool folds = true;
};

settings settings_of(const fs::path& folder) {
  settings result;
  if (std::ifstream file{folder / "settings"})
    file >> result.relative >> result.absolute >> result.folds;
  return result;
}

bool close(double a, double b, const settings& how) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= how.relative * std::abs(b) + how.absolute;
}

/// Empty if all values are close. Otherwise, the first few values that differ.
std::string first_differences(const std::vector<double>& found, const std::vector<double>& expected,
                              const settings& how) {
  if (found.size() != expected.size())
    return std::to_string(found.size()) + " elements, expected " + std::to_string(expected.size());
  constexpr int most = 5;
  int count = 0;
  std::ostringstream text;
  for (std::size_t i = 0; i < found.size() && count < most; ++i)
    if (!close(found[i], expected[i], how))
      text << (count++ > 0 ? "; " : "") << "element " << i << " is " << found[i] << ", expected "
           << expected[i];
  return text.str();
}

bool has_doubles(const example& x) {
  return std::ranges::any_of(x.inputs, [](const onnx::TensorProto& tensor) {
    return tensor.data_type() == onnx::TensorProto::DOUBLE;
  });
}

struct outcome {
  int computed = 0; ///< number of ways in which the model could be computed
  /// True if the model could be computed without making its real inputs constants: they are passed
  /// when it runs. Integer inputs, which are settings of an operator, may be constants.
  bool fed = false;
  std::string wrong;
  std::string refused;
};

outcome run(const fs::path& folder) {
  example x;
  x.model = load<onnx::ModelProto>(folder / "model.onnx");
  const auto how = settings_of(folder);
  outcome result;
  for (const auto& data : fs::directory_iterator{folder}) {
    if (!data.is_directory())
      continue;
    x.inputs = tensors(data.path(), "input");
    x.outputs = tensors(data.path(), "output");
    for (const auto batch : {way::batch::none, way::batch::first, way::batch::all})
      for (const auto known :
           {way::known::nothing, way::known::integers, way::known::others, way::known::all}) {
        if (!how.folds && known != way::known::nothing)
          continue;
        try {
          const auto values =
            has_doubles(x) ? compute<double>(x, {batch, known}) : compute<float>(x, {batch, known});
          for (const auto& [found, expected] : values)
            if (const auto difference = first_differences(found, expected, how);
                !difference.empty())
              result.wrong = data.path().filename().string() + ": " + difference;
          ++result.computed;
          result.fed = result.fed || known == way::known::nothing || known == way::known::others
            || (known == way::known::integers && std::ranges::any_of(x.inputs, is_real));
        } catch (const input_error& error) {
          // A model may be refused for several reasons. If a later step of the import fails, it has
          // come further. Keeps the reason of the latest step.
          const std::string text = error.what();
          if (result.refused.empty() || known == way::known::integers)
            result.refused = text;
        }
      }
  }
  return result;
}

std::string operators_of(const onnx::ModelProto& model) {
  std::set<std::string> names;
  for (const auto& node : model.graph().node())
    if (node.op_type() != "Constant")
      names.insert(node.op_type());
  std::string result;
  for (const auto& name : names)
    result += (result.empty() ? "" : "+") + name;
  return result;
}

/// The operators of a model that are missing in `known`.
std::string missing_in(const onnx::ModelProto& model, const std::set<std::string>& known) {
  std::set<std::string> names;
  for (const auto& node : model.graph().node())
    if (!known.contains(node.op_type()) || !node.domain().empty())
      names.insert(node.op_type());
  std::string result;
  for (const auto& name : names)
    result += (result.empty() ? "`" : ", `") + name + "`";
  return result;
}

/// An error without the name of the model and the node.
std::string reason_of(const std::string& error) {
  const auto node = error.find("): ");
  auto result = error.starts_with("model: node") && node != std::string::npos
    ? error.substr(node + 3)
    : error.substr(error.find(": ") + 2);
  constexpr std::string_view lacking = "troupe does not have this operator";
  return result.starts_with(lacking) ? std::string{lacking} : result;
}

struct totals {
  int fed = 0;     ///< tests that pass with inputs that are passed when the model runs
  int folded = 0;  ///< tests that pass only if inputs are constants of the model
  int refused = 0; ///< tests that are refused although troupe has the operators
  int others = 0;  ///< tests of operators that troupe does not have
  int wrong = 0;   ///< tests with another result than the expected one
  int random = 0;  ///< tests whose outputs depend on a random generator
  std::map<std::string, std::set<std::string>> folded_of;   ///< names of tests by operator
  std::map<std::string, std::set<std::string>> refused_for; ///< by reason
  std::map<std::string, std::set<std::string>> missing;     ///< by operator

  int all() const { return fed + folded + refused + others + random; }
};

/// Runs a test and adds it to the totals.
void count(const fs::path& folder, const std::set<std::string>& known, totals& all) {
  const auto model = load<onnx::ModelProto>(folder / "model.onnx");
  const auto name = folder.filename().string();
  if (const auto lacks = missing_in(model, known); !lacks.empty()) {
    ++all.others;
    all.missing[lacks].insert(name);
    return;
  }
  // These tests depend on ONNX's random generator, which troupe does not have.
  if (name.starts_with("test_training_dropout") && name.find("zero") == std::string::npos) {
    ++all.random;
    return;
  }
  const auto result = run(folder);
  BOOST_TEST(result.wrong == "", name << " came out wrong, " << result.wrong);
  all.wrong += result.wrong.empty() ? 0 : 1;
  if (result.fed) {
    ++all.fed;
  } else if (result.computed > 0) {
    ++all.folded;
    all.folded_of[operators_of(model)].insert(name);
  } else {
    ++all.refused;
    all.refused_for[reason_of(result.refused)].insert(name);
  }
}

/// Runs all tests in these folders of test_data(). A wrong result is an error.
totals run_groups(const std::vector<std::string>& groups) {
  std::set<std::string> known;
  for (const auto& row : onnx_operator_table())
    known.insert(row.name);
  totals all;
  for (const auto& group : groups)
    for (const auto& folder : fs::directory_iterator{test_data() / group})
      if (fs::exists(folder.path() / "model.onnx"))
        count(folder.path(), known, all);
  std::cout << all.fed + all.folded << " passed, " << all.fed << " of them fed; " << all.refused
            << " refused, " << all.others << " of operators that troupe does not have\n";
  return all;
}

/// A Markdown list with an entry for each reason, and the names of its tests.
std::string listed(const std::map<std::string, std::set<std::string>>& tests) {
  constexpr std::size_t width = 118;
  std::string result;
  for (const auto& [reason, names] : tests) {
    std::string line = "-";
    const auto add = [&](const std::string& word) {
      if (line.size() + word.size() >= width) {
        result += line + '\n';
        line = " ";
      }
      line += ' ' + word;
    };
    std::istringstream words{reason + " (" + std::to_string(names.size()) + "):"};
    for (std::string word; words >> word;)
      add(word);
    for (const auto& name : names)
      add('`' + name + '`');
    result += line + '\n';
  }
  return result;
}

/// The text of the manual's page onnx_tests.md.
std::string page_of(const totals& x) {
  std::ostringstream page;
  page
    << "# ONNX tests\n\nThis page shows which of ONNX's own tests of operators troupe refuses, and "
       "why. `onnx_test` writes it, and a test\ncompares it with what troupe does. The tests are "
       "those of ONNX 1.12.\n\n"
    << "| tests | number |\n|---|---|\n| all | " << x.all()
    << " |\n| pass with inputs that are given when the model runs | " << x.fed
    << " |\n| pass only with inputs that are constants of the model | " << x.folded
    << " |\n| give a wrong result | " << x.wrong << " |\n| refused: operators that troupe has | "
    << x.refused << " |\n| refused: operators that troupe does not have | " << x.others
    << " |\n| left out: their outputs depend on a random generator | " << x.random << " |\n\n"
    << "## Only constants\n\nThe model computes these from constants when it is read:\n\n"
    << listed(x.folded_of) << "\n## Refused: operators that troupe has\n\n"
    << listed(x.refused_for) << "\n## Refused: operators that troupe does not have\n\n"
    << listed(x.missing);
  return page.str();
}

} // namespace

BOOST_AUTO_TEST_CASE(all_of_the_operators) {
  if (!fs::is_directory(test_data() / "node")) {
    test::skip("ONNX's node tests are not in " + test_data().string()
               + " (Debian's libonnx-testdata); TROUPE_ONNX_TESTS names another folder");
    return;
  }
  const auto result = run_groups({"node", "simple", "pytorch-converted", "pytorch-operator"});
  BOOST_TEST(result.fed >= 580);
  constexpr int tests_of_version_1_12 = 1072;
  if (result.all() != tests_of_version_1_12)
    return;
  const auto page = page_of(result);
  if (const char* to = std::getenv("TROUPE_ONNX_PAGE"))
    std::ofstream{to} << page;
  const auto bytes = read_file(test::source_folder() / "apps/manual/onnx_tests.md");
  const std::string written(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  BOOST_TEST((page == written),
             "renew the page: TROUPE_ONNX_PAGE=apps/manual/onnx_tests.md "
             "onnx_test --run_test=onnx_nodes");
}

// onnxruntime_test.py runs this case. It computes the expected outputs with onnxruntime, and passes
// their folder in TROUPE_ONNX_TESTS.
BOOST_AUTO_TEST_CASE(all_of_a_folder, *boost::unit_test::disabled()) {
  if (std::getenv("TROUPE_ONNX_TESTS") == nullptr)
    return;
  const auto result = run_groups({"."});
  BOOST_TEST(result.fed > 0);
  BOOST_TEST(result.folded == 0);
  BOOST_TEST(result.refused == 0);
  BOOST_TEST(result.others == 0);
}

BOOST_AUTO_TEST_SUITE_END()
