#include "actors/model/onnx/node.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {

const std::string& onnx_node::op() const {
  return proto_.op_type();
}

void onnx_node::refuse(const std::string& what) const {
  std::string name;
  if (!proto_.name().empty())
    name = " \"" + proto_.name() + "\"";
  else if (proto_.output_size() > 0)
    name = " that makes \"" + proto_.output(0) + "\"";
  throw onnx_node_error(in_.model + ": node" + name + " (" + op() + "): " + what);
}

namespace {

/// True if both values merge the same extents into the same dimension.
bool merged_alike(const onnx_value& a, const onnx_value& b) {
  if (a.merged != b.merged || a.batch_at != b.batch_at)
    return false;
  const auto left = a.dims();
  const auto right = b.dims();
  std::size_t i = 0;
  for (const auto count : a.merged) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    const auto end = static_cast<std::ptrdiff_t>(i + count);
    if (count > 1
        && !std::equal(left.begin() + at, left.begin() + end, right.begin() + at,
                       right.begin() + end))
      return false;
    i += count;
  }
  return true;
}

/// True if the operator computes each element separately, or each row along dimensions that are not
/// merged. take_apart() may then separate the merged dimensions of its inputs.
bool works_within(const std::string& op) {
  static const std::set<std::string, std::less<>> all{"Abs",        "Add",
                                                      "Cast",       "CastLike",
                                                      "Ceil",       "Celu",
                                                      "Clip",       "Concat",
                                                      "Cos",        "Div",
                                                      "Dropout",    "Elu",
                                                      "Erf",        "Exp",
                                                      "Floor",      "Gelu",
                                                      "Gemm",       "HardSigmoid",
                                                      "HardSwish",  "Identity",
                                                      "IsNaN",      "LayerNormalization",
                                                      "LeakyRelu",  "Log",
                                                      "LogSoftmax", "MatMul",
                                                      "Max",        "Mean",
                                                      "Min",        "Mish",
                                                      "Mul",        "Neg",
                                                      "Pow",        "RMSNormalization",
                                                      "Reciprocal", "Relu",
                                                      "Round",      "Selu",
                                                      "Sigmoid",    "Sign",
                                                      "Sin",        "Slice",
                                                      "Softmax",    "Softplus",
                                                      "Softsign",   "Split",
                                                      "Sqrt",       "Sub",
                                                      "Sum",        "Swish",
                                                      "Tanh",       "Where"};
  return all.contains(op);
}

} // namespace

void onnx_node::take_apart() {
  std::vector<std::size_t> folded;
  for (std::size_t i = 0; i < inputs(); ++i)
    if (has_input(i) && !named(i).merged.empty())
      folded.push_back(i);
  if (folded.empty() || !works_within(op()))
    return;
  const auto& first = folded_input(folded[0]);
  // Number of unmerged dimensions after the merged one.
  const auto behind = static_cast<std::size_t>(
    std::find_if(first.merged.rbegin(), first.merged.rend(), [](auto n) { return n != 1; })
    - first.merged.rbegin());
  const bool product = op() == "MatMul" || op() == "Gemm";
  if (behind < (product && folded.size() + folded[0] > 1 ? 2U : product ? 1U : 0U))
    refuse("the product would sum over the batch");
  for (std::size_t i = 0; i < inputs(); ++i) {
    if (!has_input(i))
      continue;
    const auto& v = folded_input(i);
    if (merged_alike(v, first)) {
      apart_.emplace(i, unfolded(v));
      continue;
    }
    if (product && i == 1 && v.rank() <= 2 && v.merged.empty() && !v.has_batch())
      continue; // the same matrix multiplies every row
    if (!v.merged.empty())
      refuse("inputs " + std::to_string(folded[0]) + " and " + std::to_string(i)
             + " merge the batch with other dimensions in different ways");
    // An input with its own batch is accepted only if the model was exported with a batch of 1. The
    // batch is then repeated like any other extent of 1.
    if (v.has_batch() && example() != 1)
      refuse("input " + std::to_string(folded[0])
             + " merges the batch with another dimension, and input " + std::to_string(i)
             + " does not");
    // An input without a batch is repeated along the merged dimension. So only its last `behind`
    // extents may differ from 1.
    auto dims = v.dims();
    std::ranges::replace(dims, onnx_constant::batch, std::int64_t{1});
    dims.resize(dims.size() - std::min(dims.size(), behind));
    if (std::ranges::any_of(dims, [](auto extent) { return extent != 1; }))
      refuse("input " + std::to_string(folded[0])
             + " merges the batch with another dimension, and "
               "input "
             + std::to_string(i) + " does not fit");
  }
  merged_ = first.merged;
}

// -- inputs -------------------------------------------------------------------------------------

std::size_t onnx_node::inputs() const {
  return static_cast<std::size_t>(proto_.input_size());
}

bool onnx_node::has_input(std::size_t i) const {
  return i < inputs() && !proto_.input(static_cast<int>(i)).empty();
}

const onnx_value& onnx_node::input(std::size_t i) const {
  if (const auto found = apart_.find(i); found != apart_.end())
    return found->second;
  const auto& result = folded_input(i);
  if (!result.merged.empty())
    refuse("input " + std::to_string(i)
           + " merges the batch with another dimension, and troupe "
             "cannot tell whether this operator keeps the samples apart");
  return result;
}

const onnx_value& onnx_node::folded_input(std::size_t i) const {
  const auto& result = named(i);
  if (result.items)
    refuse("input " + std::to_string(i) + " is a sequence of tensors");
  if (is_only_of_tokens(result))
    refuse("input " + std::to_string(i)
           + " is computed from the whole numbers of the model's input, and stays whole numbers; "
             "this operator cannot read them: convert them to real numbers (Cast), or compute them "
             "before the model, and give them as the data");
  return result;
}

const onnx_value& onnx_node::token_input(std::size_t i) const {
  const auto& result = named(i);
  return is_only_of_tokens(result) ? result : input(i);
}

const std::vector<onnx_value>& onnx_node::sequence(std::size_t i) const {
  const auto& result = named(i);
  if (!result.items)
    refuse("input " + std::to_string(i) + " is not a sequence of tensors");
  return *result.items;
}

const onnx_value& onnx_node::named(std::size_t i) const {
  if (!has_input(i))
    refuse("input " + std::to_string(i) + " is missing");
  const auto& name = proto_.input(static_cast<int>(i));
  const auto found = in_.all.find(name);
  if (found == in_.all.end())
    refuse("reads \"" + name + "\", which no node computes");
  return found->second;
}

const onnx_constant& onnx_node::known(std::size_t i, std::string_view what) const {
  const auto& x = input(i);
  if (!x.known)
    refuse("the " + std::string{what} + " must be a constant, and \""
           + proto_.input(static_cast<int>(i)) + "\" depends on the input of the model");
  return *x.known;
}

std::vector<std::int64_t> onnx_node::integers_of(std::size_t i, std::string_view what) const {
  const auto& c = known(i, what);
  const auto n = c.elements();
  if (c.dims.size() > 1 || n > limit())
    refuse("the " + std::string{what} + " must be a list of numbers");
  std::vector<std::int64_t> result;
  for (std::size_t k = 0; k < n; ++k)
    result.push_back(onnx_integer(c.at(k)));
  return result;
}

double onnx_node::number_of(std::size_t i, std::string_view what) const {
  const auto& c = known(i, what);
  if (c.elements() != 1 || c.values.empty())
    refuse("the " + std::string{what} + " must be one number");
  return c.values[0];
}

// -- attributes ---------------------------------------------------------------------------------

const onnx::AttributeProto* onnx_node::find(std::string_view name) const {
  for (const auto& x : proto_.attribute())
    if (x.name() == name)
      return &x;
  return nullptr;
}

bool onnx_node::has(std::string_view name) const {
  return find(name) != nullptr;
}

const onnx::AttributeProto* onnx_node::attribute(std::string_view name) {
  read_.emplace(name);
  return find(name);
}

const onnx::AttributeProto* onnx_node::typed(std::string_view name, int type) {
  const auto* x = attribute(name);
  // Old files omit the type.
  if (x != nullptr && x->has_type() && x->type() != type)
    refuse("attribute \"" + std::string{name} + "\" has the type "
           + onnx::AttributeProto::AttributeType_Name(x->type()) + ", expected "
           + onnx::AttributeProto::AttributeType_Name(
             static_cast<onnx::AttributeProto::AttributeType>(type)));
  return x;
}

std::int64_t onnx_node::integer(std::string_view name, std::int64_t otherwise) {
  const auto* x = typed(name, onnx::AttributeProto::INT);
  return x != nullptr ? x->i() : otherwise;
}

double onnx_node::real(std::string_view name, double otherwise) {
  const auto* x = typed(name, onnx::AttributeProto::FLOAT);
  return x != nullptr ? static_cast<double>(x->f()) : otherwise;
}

std::string onnx_node::text(std::string_view name, std::string_view otherwise) {
  const auto* x = typed(name, onnx::AttributeProto::STRING);
  return x != nullptr ? x->s() : std::string{otherwise};
}

std::vector<std::int64_t> onnx_node::integers(std::string_view name,
                                              std::vector<std::int64_t> otherwise) {
  const auto* x = typed(name, onnx::AttributeProto::INTS);
  if (x == nullptr)
    return otherwise;
  return {x->ints().begin(), x->ints().end()};
}

std::vector<double> onnx_node::reals(std::string_view name) {
  const auto* x = typed(name, onnx::AttributeProto::FLOATS);
  if (x == nullptr)
    return {};
  return {x->floats().begin(), x->floats().end()};
}

std::vector<std::string> onnx_node::texts(std::string_view name) {
  const auto* x = typed(name, onnx::AttributeProto::STRINGS);
  if (x == nullptr)
    return {};
  return {x->strings().begin(), x->strings().end()};
}

void onnx_node::require(std::string_view name, std::int64_t value, std::int64_t otherwise) {
  const auto found = integer(name, otherwise);
  if (found != value)
    refuse("attribute \"" + std::string{name} + "\" is " + std::to_string(found)
           + "; troupe supports only " + std::to_string(value));
}

void onnx_node::finish() const {
  // Old operator sets have the attribute consumed_inputs, which is only a hint about memory.
  for (const auto& x : proto_.attribute())
    if (!read_.contains(x.name()) && x.name() != "consumed_inputs")
      refuse("attribute \"" + x.name() + "\" is not supported");
}

std::size_t onnx_node::axis(std::int64_t x, std::size_t rank) const {
  if (is_apart()) {
    const auto n = merged_.size();
    const auto i = static_cast<std::size_t>(x < 0 ? x + static_cast<std::int64_t>(n) : x);
    if (i >= n || merged_[i] != 1)
      refuse("axis " + std::to_string(x) + " is merged with the batch, or does not exist");
    return std::accumulate(merged_.begin(), merged_.begin() + static_cast<std::ptrdiff_t>(i),
                           std::size_t{0});
  }
  const auto n = static_cast<std::int64_t>(rank);
  if (x < -n || x >= n)
    refuse("axis " + std::to_string(x) + " does not exist in a tensor with " + std::to_string(rank)
           + " dimensions");
  return static_cast<std::size_t>(x < 0 ? x + n : x);
}

std::vector<std::size_t> onnx_node::axes(const std::vector<std::int64_t>& given,
                                         std::size_t rank) const {
  std::vector<std::size_t> result;
  for (const auto x : given)
    result.push_back(axis(x, rank));
  std::ranges::sort(result);
  if (std::ranges::adjacent_find(result) != result.end())
    refuse("an axis is named twice");
  return result;
}

// -- outputs ------------------------------------------------------------------------------------

std::size_t onnx_node::outputs() const {
  return static_cast<std::size_t>(proto_.output_size());
}

bool onnx_node::has_output(std::size_t i) const {
  return i < outputs() && !proto_.output(static_cast<int>(i)).empty()
    && in_.used.contains(proto_.output(static_cast<int>(i)));
}

const onnx_value& onnx_node::output(std::size_t i) const {
  return in_.all.at(proto_.output(static_cast<int>(i)));
}

bool onnx_node::is_input(const onnx_value& constant) const {
  for (std::size_t i = 0; i < inputs(); ++i)
    if (has_input(i) && named(i).known == constant.known)
      return true;
  return false;
}

void onnx_node::set(std::size_t i, onnx_value x) {
  if (!has_output(i))
    return;
  if (is_apart()) {
    if (x.rank() != std::accumulate(merged_.begin(), merged_.end(), std::size_t{0}) || x.known)
      refuse("the batch is merged with another dimension, and the result has another rank");
    x.merged = merged_;
  }
  // The result of an operator that only arranges elements has truth values if an input has them.
  // The first input of Where is only the condition.
  static const std::set<std::string_view> arranging{
    "Concat", "Expand", "Flatten", "Gather", "GatherND",  "Identity",  "Pad",  "Reshape",
    "Slice",  "Split",  "Squeeze", "Tile",   "Transpose", "Unsqueeze", "Where"};
  if (arranging.contains(op()))
    for (std::size_t k = op() == "Where" ? 1 : 0; k < inputs(); ++k)
      x.is_truth = x.is_truth || (has_input(k) && named(k).is_truth);
  for (const auto& part : x.items ? *x.items : std::vector{x})
    if (part.known && !is_input(part))
      charge(part.known->values.size());
  in_.all.insert_or_assign(proto_.output(static_cast<int>(i)), std::move(x));
}

void onnx_node::charge(std::size_t elements) const {
  if (elements > in_.most_computed - in_.computed)
    refuse("the constants that are computed when the model is read have more than "
           + std::to_string(in_.most_computed) + " elements in all");
  in_.computed += elements;
}

std::vector<onnx_value> onnx_node::compute(const onnx::GraphProto& body,
                                           const std::vector<onnx_value>& inputs) {
  if (inputs.size() != static_cast<std::size_t>(body.input_size()))
    refuse("its body has " + std::to_string(body.input_size()) + " inputs, and "
           + std::to_string(inputs.size()) + " are given");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    in_.all.insert_or_assign(body.input(static_cast<int>(i)).name(), inputs[i]);
  auto& constants = in_.constants[&body];
  for (int i = static_cast<int>(constants.size()); i < body.initializer_size(); ++i)
    constants.emplace_back(read_onnx_tensor(body.initializer(i)));
  for (int i = 0; i < body.initializer_size(); ++i)
    in_.all.insert_or_assign(body.initializer(i).name(), constants[static_cast<std::size_t>(i)]);
  in_.unrolled -= 1 + body.node_size();
  if (in_.unrolled < 0)
    refuse("the loops of the model become more than 131072 nodes when they are unrolled");
  const auto outside = std::exchange(in_.body, ++in_.bodies);
  for (const auto& proto : body.node()) {
    onnx_node node{proto, in_};
    convert(node);
  }
  in_.body = outside;
  std::vector<onnx_value> result;
  for (const auto& x : body.output()) {
    const auto found = in_.all.find(x.name());
    if (found == in_.all.end())
      refuse("output \"" + x.name()
             + "\" of its body is an optional output of its operator, which is not supported");
    result.push_back(found->second);
  }
  return result;
}

void onnx_node::refuse_output(std::size_t i, std::string_view what) const {
  if (has_output(i))
    refuse("its output \"" + proto_.output(static_cast<int>(i)) + "\", the " + std::string{what}
           + ", is not supported");
}

} // namespace troupe
