// The ONNX nodes of each operation of a graph.

#include "actors/model/onnx/exporter.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace troupe {

namespace {

/// The ONNX operator that computes the same from the same operands; empty if there is none.
std::string_view same_operator(operation op) {
  switch (op) {
  case operation::add:
    return "Add";
  case operation::subtract:
    return "Sub";
  case operation::multiply:
  case operation::multiply_rows:
    return "Mul";
  case operation::divide:
    return "Div";
  case operation::exp:
    return "Exp";
  case operation::log:
    return "Log";
  case operation::square_root:
    return "Sqrt";
  case operation::absolute:
    return "Abs";
  case operation::sign:
    return "Sign";
  case operation::erf:
    return "Erf";
  case operation::softplus:
    return "Softplus";
  case operation::relu:
    return "Relu";
  case operation::maximum:
    return "Max";
  case operation::minimum:
    return "Min";
  case operation::tanh:
    return "Tanh";
  case operation::sigmoid:
    return "Sigmoid";
  case operation::stop_gradient:
    return "Identity";
  case operation::embedding:
    return "Gather";
  default:
    return {};
  }
}

std::vector<std::int64_t> signed_axes(const std::vector<std::size_t>& axes) {
  return {axes.begin(), axes.end()};
}

std::vector<std::int64_t> counted(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> result(
    static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
  std::iota(result.begin(), result.end(), begin);
  return result;
}

} // namespace

std::string onnx_exporter::operation_of(const node& n, const std::string& wish) {
  if (const auto op = same_operator(n.op); !op.empty()) {
    std::vector<std::string> inputs;
    for (const auto id : n.inputs)
      inputs.push_back(value(id));
    return add(op, inputs, {}, fresh(wish));
  }
  switch (n.op) {
  case operation::constant:
    return constant(n);
  case operation::matmul:
    return product(n, "");
  case operation::batched_matmul:
    return batched_product(n);
  case operation::add_bias:
  case operation::add_channel_bias:
    return biased(n);
  case operation::scale:
    return add("Mul", {value(n.inputs[0]), number(n.factor)});
  case operation::offset:
    return add("Add", {value(n.inputs[0]), number(n.factor)});
  case operation::gelu: {
    const auto x = value(n.inputs[0]);
    const auto tail = add("Erf", {add("Mul", {x, number(std::sqrt(0.5))})});
    return add("Mul", {add("Mul", {x, add("Add", {tail, number(1)})}), number(0.5)});
  }
  case operation::at_least:
    return add("Clip", {value(n.inputs[0]), number(n.factor)});
  case operation::at_most:
    return add("Clip", {value(n.inputs[0]), "", number(n.factor)});
  case operation::greater:
    return truth(add("Greater", {value(n.inputs[0]), value(n.inputs[1])}));
  case operation::above:
    return truth(add("Greater", {value(n.inputs[0]), number(n.factor)}));
  case operation::select: {
    const auto condition = add("Greater", {value(n.inputs[0]), number(0)});
    return add("Where", {condition, value(n.inputs[1]), value(n.inputs[2])});
  }
  case operation::leaky_relu:
    return add("LeakyRelu", {value(n.inputs[0])}, {real("alpha", n.factor)});
  case operation::softmax:
    return add("Softmax", {value(n.inputs[0])}, {integer("axis", -1)});
  case operation::sum:
  case operation::sum_leading:
  case operation::sum_last:
  case operation::sum_channels:
    return reduced(n);
  case operation::broadcast:
  case operation::broadcast_leading:
  case operation::broadcast_last:
  case operation::broadcast_channels:
    return broadcast(n);
  case operation::to_float: {
    const auto x = add("Cast", {value(n.inputs[0])}, {integer("to", onnx::TensorProto::FLOAT)});
    return add("Reshape", {x, shape_of(n.shape)});
  }
  case operation::multiply_channels:
    return add("Mul", {value(n.inputs[0]), per_channel(n.inputs[1], n.shape.rank())});
  case operation::conv2d:
  case operation::conv2d_input_gradient:
    return convolution(n, "");
  case operation::max_pool_select:
  case operation::average_pool:
    return pooled(n);
  case operation::normalize_rows:
    return normalized(n, "", "");
  case operation::causal_softmax:
    return causal_softmax(n);
  default:
    return moved(n);
  }
}

/// Converts truth values to 0 and 1.
std::string onnx_exporter::truth(const std::string& x) {
  return add("Cast", {x}, {integer("to", onnx::TensorProto::FLOAT)});
}

std::string onnx_exporter::constant(const node& n) {
  if (n.shape.rank() == 0)
    return number(n.values[0]);
  if (n.values.size() == 1)
    return expanded(number(n.values[0]), n.shape);
  return numbers(n.values, n.shape.extents());
}

std::string onnx_exporter::product(const node& n, const std::string& bias) {
  const auto a = n.inputs[0];
  const auto b = n.inputs[1];
  if (n.transpose_a && at(a).shape.has_batch())
    refuse(n, "a sum over the samples has no meaning in a model");
  if (at(b).shape.has_batch() || at(b).shape.rank() != 2
      || (n.transpose_a && at(a).shape.rank() != 2))
    refuse(n,
           "products of such shapes are not supported: " + to_string(at(a).shape) + " and "
             + to_string(at(b).shape));
  if (at(a).shape.rank() == 2) {
    std::vector<std::string> inputs{value(a), value(b)};
    if (!bias.empty())
      inputs.push_back(bias);
    return add(
      "Gemm", inputs,
      {integer("transA", n.transpose_a ? 1 : 0), integer("transB", n.transpose_b ? 1 : 0)});
  }
  const auto right =
    n.transpose_b ? add("Transpose", {value(b)}, {integers("perm", {1, 0})}) : value(b);
  return add("MatMul", {value(a), right});
}

std::string onnx_exporter::batched_product(const node& n) {
  const auto operand = [&](std::uint32_t id, bool transposed) {
    if (!transposed)
      return value(id);
    auto axes = counted(0, static_cast<std::int64_t>(at(id).shape.rank()));
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return add("Transpose", {value(id)}, {integers("perm", axes)});
  };
  const auto left = operand(n.inputs[0], n.transpose_a);
  return add("MatMul", {left, operand(n.inputs[1], n.transpose_b)});
}

std::string onnx_exporter::per_channel(std::uint32_t id, std::size_t rank) {
  const auto axes = counted(1, static_cast<std::int64_t>(rank) - 1);
  return axes.empty() ? value(id) : add("Unsqueeze", {value(id), whole_numbers(axes)});
}

/// Recognizes the result of batch_norm_testing(): x f + (bias - mean f), f = gain / sqrt(variance +
/// epsilon), all of them variables. Returns the node variance + epsilon, or null.
const node* onnx_exporter::batch_norm_at(const node& n) const {
  const auto is = [&](std::uint32_t id, operation op) { return at(id).op == op; };
  if (n.op != operation::add_channel_bias || !is(n.inputs[0], operation::multiply_channels)
      || !is(n.inputs[1], operation::subtract))
    return nullptr;
  const auto factor = at(n.inputs[0]).inputs[1];
  const auto& summand = at(n.inputs[1]);
  if (!is(factor, operation::divide) || !is(summand.inputs[0], operation::variable)
      || !is(summand.inputs[1], operation::multiply))
    return nullptr;
  const auto& product = at(summand.inputs[1]);
  const auto& quotient = at(factor);
  if (product.inputs[1] != factor || !is(product.inputs[0], operation::variable)
      || !is(quotient.inputs[0], operation::variable)
      || !is(quotient.inputs[1], operation::square_root))
    return nullptr;
  const auto& sum = at(at(quotient.inputs[1]).inputs[0]);
  return sum.op == operation::offset && is(sum.inputs[0], operation::variable) ? &sum : nullptr;
}

std::string onnx_exporter::batch_normalized(const node& n) {
  const auto* sum = batch_norm_at(n);
  const auto& scaled = at(n.inputs[0]);
  const auto& summand = at(n.inputs[1]);
  const auto& entry = graph_.parameters().entries()[at(sum->inputs[0]).index];
  return add("BatchNormalization",
             {value(scaled.inputs[0]), value(at(scaled.inputs[1]).inputs[0]),
              value(summand.inputs[0]), value(at(summand.inputs[1]).inputs[0]),
              value(sum->inputs[0])},
             {real("epsilon", sum->factor), real("momentum", 1 - entry.decay)});
}

std::string onnx_exporter::biased(const node& n) {
  if (batch_norm_at(n) != nullptr)
    return batch_normalized(n);

  const auto& first = at(n.inputs[0]);
  const bool together = absorbed_.contains(n.inputs[0]);
  if (together && first.op == operation::matmul)
    return product(first, value(n.inputs[1]));
  if (together && n.op == operation::add_channel_bias)
    return convolution(first, value(n.inputs[1]));
  if (together)
    return normalized(at(first.inputs[0]), value(first.inputs[1]), value(n.inputs[1]));
  const auto bias =
    n.op == operation::add_bias ? value(n.inputs[1]) : per_channel(n.inputs[1], n.shape.rank());
  return add("Add", {value(n.inputs[0]), bias});
}

std::string onnx_exporter::reduced(const node& n) {
  const auto& x = at(n.inputs[0]);
  const auto rank = static_cast<std::int64_t>(x.shape.rank());
  if (x.shape.has_batch() && n.op != operation::sum_last)
    refuse(n, "a sum over the samples has no meaning in a model");
  auto axes = counted(0, rank);
  if (n.op == operation::sum_last)
    axes = {rank - 1};
  else if (n.op == operation::sum_leading)
    axes.pop_back();
  else if (n.op == operation::sum_channels)
    axes.erase(axes.begin() + 1);
  if (axes.empty())
    return add("Identity", {value(n.inputs[0])});
  return add("ReduceSum", {value(n.inputs[0]), whole_numbers(axes)}, {integer("keepdims", 0)});
}

std::string onnx_exporter::broadcast(const node& n) {
  auto x = value(n.inputs[0]);
  if (n.op == operation::broadcast_last)
    x = add("Unsqueeze", {x, whole_numbers({-1})});
  else if (n.op == operation::broadcast_channels)
    x = per_channel(n.inputs[0], n.shape.rank());
  return expanded(x, n.shape);
}

std::string onnx_exporter::convolution(const node& n, const std::string& bias) {
  const auto& how = n.window;
  std::vector<std::string> inputs{value(n.inputs[0]), value(n.inputs[1])};
  if (!bias.empty())
    inputs.push_back(bias);
  std::vector<attribute> attributes{integers("kernel_shape", {how.height, how.width}),
                                    integers("strides", {how.stride_y, how.stride_x}),
                                    integers("pads", {how.pad_y, how.pad_x, how.pad_y, how.pad_x}),
                                    integers("dilations", {how.dilation_y, how.dilation_x}),
                                    integer("group", how.groups)};
  if (n.op == operation::conv2d)
    return add("Conv", inputs, attributes);
  // Rows and columns that no position of the window reaches.
  const auto& image = n.shape;
  attributes.push_back(integers("output_padding",
                                {(image[2] + 2 * how.pad_y - how.extent_y()) % how.stride_y,
                                 (image[3] + 2 * how.pad_x - how.extent_x()) % how.stride_x}));
  return add("ConvTranspose", inputs, attributes);
}

namespace {

/// True if ceil_mode adds windows. ONNX's shape inference before version 22 also counts windows
/// that begin beyond the image, so the mode is written only if it has an effect.
bool needs_ceil_mode(const window& how, const shape& from, const shape& to) {
  const auto rows = (from[2] + 2 * how.pad_y - how.height) / how.stride_y + 1;
  const auto columns = (from[3] + 2 * how.pad_x - how.width) / how.stride_x + 1;
  return how.ceil_mode && (to[2] != rows || to[3] != columns);
}

} // namespace

std::string onnx_exporter::pooled(const node& n) {
  const auto& how = n.window;
  std::vector<attribute> attributes{
    integers("kernel_shape", {how.height, how.width}),
    integers("strides", {how.stride_y, how.stride_x}),
    integers("pads", {how.pad_y, how.pad_x, how.pad_y, how.pad_x}),
    integer("ceil_mode", needs_ceil_mode(how, at(n.inputs[0]).shape, n.shape) ? 1 : 0)};
  if (n.op == operation::average_pool) {
    attributes.push_back(integer("count_include_pad", 1));
    return add("AveragePool", {value(n.inputs[0])}, attributes);
  }
  if (n.inputs[0] != n.inputs[1])
    refuse(n, "ONNX has no operator for it");
  return add("MaxPool", {value(n.inputs[0])}, attributes);
}

/// Operations that move elements, and all remaining ones.
std::string onnx_exporter::moved(const node& n) {
  const bool together = !n.inputs.empty() && absorbed_.contains(n.inputs[0]);
  if (together)
    return recurrent(at(n.inputs[0]));
  const auto x = n.inputs.empty() ? std::string{} : value(n.inputs[0]);
  const auto rank = n.shape.rank();
  switch (n.op) {
  case operation::reshape: {
    auto extents = n.shape.extents();
    if (n.shape.has_batch())
      extents[0] = -1;
    return add("Reshape", {x, whole_numbers(extents)});
  }
  case operation::transpose:
    return add("Transpose", {x}, {integers("perm", signed_axes(n.axes))});
  case operation::concat: {
    std::vector<std::string> inputs;
    for (const auto id : n.inputs)
      inputs.push_back(value(id));
    return add("Concat", inputs, {integer("axis", static_cast<std::int64_t>(n.axes[0]))});
  }
  case operation::slice: {
    const auto begin = static_cast<std::int64_t>(n.axes[1]);
    return add("Slice",
               {x, whole_numbers({begin}), whole_numbers({begin + n.shape[n.axes[0]]}),
                whole_numbers({static_cast<std::int64_t>(n.axes[0])})});
  }
  case operation::reverse:
    return add("Slice",
               {x, whole_numbers({-1}), whole_numbers({-n.shape[n.axes[0]] - 1}),
                whole_numbers({static_cast<std::int64_t>(n.axes[0])}), whole_numbers({-1})});
  case operation::place: {
    std::vector<std::int64_t> pads(2 * rank, 0);
    const auto axis = n.axes[0];
    const auto begin = static_cast<std::int64_t>(n.axes[1]);
    pads[axis] = begin;
    pads[rank + axis] = n.shape[axis] - begin - at(n.inputs[0]).shape[axis];
    return add("Pad", {x, whole_numbers(pads)});
  }
  default:
    refuse(n, "ONNX has no operator for it");
  }
}

std::string onnx_exporter::normalized(const node& n, const std::string& gain,
                                      const std::string& bias) {
  const auto ones = expanded(number(1), {n.shape.last()});
  std::vector<std::string> inputs{value(n.inputs[0]), gain.empty() ? ones : gain};
  if (!bias.empty())
    inputs.push_back(bias);
  return add("LayerNormalization", inputs, {integer("axis", -1), real("epsilon", n.factor)});
}

// Softmax after all elements above the diagonal are set to -infinity.
std::string onnx_exporter::causal_softmax(const node& n) {
  const auto time = n.shape.last();
  const auto extent = static_cast<std::size_t>(time);
  std::vector<double> mask(extent * extent, 0);
  for (std::size_t i = 0; i < extent; ++i)
    for (std::size_t j = i + 1; j < extent; ++j)
      mask[i * extent + j] = -std::numeric_limits<double>::infinity();
  const auto constant = numbers(mask, {time, time});
  return add("Softmax", {add("Add", {value(n.inputs[0]), constant})}, {integer("axis", -1)});
}

} // namespace troupe
