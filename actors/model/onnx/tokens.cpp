// Computations on tokens that models do before they look up rows of a table, and to make masks.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/operations.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

namespace troupe {

namespace {

using kind = onnx_constant::kind;
using of_numbers = double (*)(std::span<const double>);

struct token_operator {
  std::size_t inputs;
  of_numbers compute;
  bool says_truth = false;
};

const std::map<std::string_view, token_operator>& token_operators() {
  using numbers = std::span<const double>;
  static const std::map<std::string_view, token_operator> all{
    {"Add", {2, [](numbers x) { return x[0] + x[1]; }}},
    {"Sub", {2, [](numbers x) { return x[0] - x[1]; }}},
    {"Mul", {2, [](numbers x) { return x[0] * x[1]; }}},
    {"Max", {2, [](numbers x) { return std::max(x[0], x[1]); }}},
    {"Min", {2, [](numbers x) { return std::min(x[0], x[1]); }}},
    {"Equal", {2, [](numbers x) { return x[0] == x[1] ? 1.0 : 0.0; }, true}},
    {"Less", {2, [](numbers x) { return x[0] < x[1] ? 1.0 : 0.0; }, true}},
    {"LessOrEqual", {2, [](numbers x) { return x[0] <= x[1] ? 1.0 : 0.0; }, true}},
    {"Greater", {2, [](numbers x) { return x[0] > x[1] ? 1.0 : 0.0; }, true}},
    {"GreaterOrEqual", {2, [](numbers x) { return x[0] >= x[1] ? 1.0 : 0.0; }, true}},
    {"And", {2, [](numbers x) { return x[0] * x[1]; }, true}},
    {"Or", {2, [](numbers x) { return std::max(x[0], x[1]); }, true}},
    {"Not", {1, [](numbers x) { return 1 - x[0]; }, true}},
    {"Where", {3, [](numbers x) { return x[0] != 0 ? x[1] : x[2]; }}},
  };
  return all;
}

/// An operand: a function of the tokens, or a single number.
struct token_operand {
  const onnx_value* value;
  std::function<double(double)> of;
  kind type;
};

bool is_whole_tensor(const onnx_value& v) {
  return !v.known && v.x.node().type == dtype::int32;
}

token_operand operand_of(const onnx_value& v) {
  if (v.of_tokens)
    return {&v, v.of_tokens->of, v.of_tokens->type};
  if (v.known)
    return {&v, [number = v.known->at(0)](double) { return number; }, v.known->type};
  return {&v, [](double token) { return token; }, kind::integer};
}

expression tokens_of(const onnx_value& v) {
  return v.of_tokens ? v.of_tokens->tokens : v.x;
}

/// A function that combines the results of other functions of a token.
struct token_function {
  /// Largest number of calls for one token. Without this limit, a chain of n nodes x + x would take
  /// 2^n calls.
  static constexpr std::size_t most_calls = 100;
  static constexpr std::size_t most_operands = 3;

  std::vector<std::function<double(double)>> operands;
  of_numbers compute;
  std::size_t calls = 1;

  token_function(std::vector<std::function<double(double)>> of, of_numbers how)
    : operands(std::move(of)), compute(how) {
    for (const auto& f : operands)
      if (const auto* inner = f.target<token_function>())
        calls += inner->calls;
  }

  double operator()(double token) const {
    std::array<double, most_operands> numbers{};
    for (std::size_t i = 0; i < operands.size(); ++i)
      numbers[i] = operands[i](token);
    return compute(std::span{numbers}.first(operands.size()));
  }
};

/// The values of an operand as real numbers.
onnx_value real_of(const onnx_node& node, const onnx_value& v) {
  return v.of_tokens ? onnx_value{v.of_tokens->real, v.batch_at} : as_real(node, v);
}

/// Sets the output to a function of the tokens.
/// @param real the same values as a tensor of real numbers
void set_result(onnx_node& node, const onnx_value& like, expression real, token_function of,
                kind type) {
  const bool too_much = of.calls > token_function::most_calls;
  if (too_much && type == kind::integer)
    node.refuse("the model computes too much with its tokens; compute it before the model");
  onnx_value result{type == kind::integer ? tokens_of(like) : real, like.batch_at};
  result.is_truth = type == kind::boolean;
  if (!too_much)
    result.of_tokens = std::make_shared<const onnx_of_tokens>(
      onnx_of_tokens{tokens_of(like), std::move(of), type, real});
  node.set(std::move(result));
}

/// Reads the operands of a node. Returns true if at least one input is a function of the tokens,
/// and each other input is a single number or a function of the same tokens.
bool read_operands(const onnx_node& node, std::vector<token_operand>& operands) {
  const onnx_value* first = nullptr;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    const auto& v = node.token_input(i);
    const bool number = v.known && v.known->elements() == 1 && v.known->dims.size() <= 1
      && onnx_constant::is_number(v.known->at(0));
    if (!number && !v.of_tokens && !is_whole_tensor(v))
      return false;
    if (!number && first != nullptr
        && (tokens_of(v) != tokens_of(*first) || v.batch_at != first->batch_at))
      return false;
    if (!number && first == nullptr)
      first = &v;
    operands.push_back(operand_of(v));
  }
  return first != nullptr;
}

/// Converts a function of the tokens to another type. Returns false, and does nothing, for any
/// other value (for example the tokens themselves). The usual converter then makes the cast.
bool cast_of_tokens(onnx_node& node) {
  const auto& v = node.token_input(0);
  if (!v.of_tokens)
    return false;
  const auto to = node.integer("to", 0);
  node.ignore("saturate");
  node.ignore("round_mode");
  using onnx::TensorProto;
  const auto& of = v.of_tokens->of;
  const auto real = v.of_tokens->real;
  if (to == TensorProto::FLOAT || to == TensorProto::DOUBLE || to == TensorProto::FLOAT16
      || to == TensorProto::BFLOAT16)
    set_result(node, v, real, {{of}, [](std::span<const double> x) { return x[0]; }}, kind::real);
  else if (to == TensorProto::INT32 || to == TensorProto::INT64)
    set_result(node, v, real, {{of}, [](std::span<const double> x) { return std::trunc(x[0]); }},
               kind::integer);
  else if (to == TensorProto::BOOL)
    set_result(node, v, above(absolute(real), 0),
               {{of}, [](std::span<const double> x) { return x[0] != 0 ? 1.0 : 0.0; }},
               kind::boolean);
  else
    node.refuse("attribute \"to\" is " + std::to_string(to)
                + "; expected FLOAT, FLOAT16, BFLOAT16, DOUBLE, INT32, INT64 or BOOL");
  return true;
}

} // namespace

bool is_only_of_tokens(const onnx_value& v) noexcept {
  return v.of_tokens && v.of_tokens->type == kind::integer;
}

bool compute_of_tokens(onnx_node& node, onnx_converter convert) {
  if (node.is_apart())
    return false;
  if (node.op() == "Cast")
    return cast_of_tokens(node);
  const auto found = token_operators().find(node.op());
  if (found == token_operators().end() || node.inputs() != found->second.inputs)
    return false;
  std::vector<token_operand> operands;
  if (!read_operands(node, operands))
    return false;
  const auto first =
    *std::ranges::find_if(operands, [](const token_operand& x) { return !x.value->known; })->value;
  // A real result is computed by the usual converter, from the tokens as a tensor.
  const auto type = found->second.says_truth ? kind::boolean : operands.back().type;
  if (type == kind::real)
    return false;
  std::vector<std::function<double(double)>> functions;
  for (const auto& x : operands)
    functions.push_back(x.of);
  if (!node.has_output(0))
    return true;
  for (std::size_t i = 0; i < node.inputs(); ++i)
    node.replace_input(i, real_of(node, *operands[i].value));
  convert(node);
  set_result(node, first, node.output(0).x, {std::move(functions), found->second.compute}, type);
  return true;
}

} // namespace troupe
