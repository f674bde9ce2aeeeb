// A table with a row per operation of a graph, which says which ONNX nodes the operation becomes.

#include "actors/model/onnx/exporter.hpp"
#include "kernels/cpu/math.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace troupe {

namespace {

std::vector<std::int64_t> counted(std::size_t begin, std::size_t end) {
  std::vector<std::int64_t> result(end > begin ? end - begin : 0);
  std::iota(result.begin(), result.end(), static_cast<std::int64_t>(begin));
  return result;
}

using row = onnx_export_row;

constexpr row refused(operation op, std::string_view why) {
  return {.op = op, .refusal = why};
}

constexpr std::string_view no_operator = "ONNX has no operator for it";
constexpr std::string_view is_loss = "a model in use has no loss";
constexpr std::string_view over_samples = "a sum over the samples has no meaning in a model";

} // namespace

struct onnx_export_rows {
  using op = operation;
  using to = onnx_exporter;

  template <std::string (onnx_exporter::*f)(const node&)>
  static constexpr row by(operation op) {
    return {.op = op, .write = [](to& x, const node& n) { return (x.*f)(n); }};
  }

  /// Each function from here to at_most() writes an ONNX operator that combines the first operand
  /// of n with the number n.factor. This number becomes an attribute or the second operand.
  static std::string scale(to& x, const node& n) {
    return x.add("Mul", {x.value(n.inputs[0]), x.number(n.factor)});
  }
  static std::string offset(to& x, const node& n) {
    return x.add("Add", {x.value(n.inputs[0]), x.number(n.factor)});
  }
  static std::string leaky_relu(to& x, const node& n) {
    return x.add("LeakyRelu", {x.value(n.inputs[0])}, {to::real("alpha", n.factor)});
  }
  // Clip without an upper limit would turn infinity into the largest float.
  static std::string at_least(to& x, const node& n) {
    return x.add("Max", {x.value(n.inputs[0]), x.number(n.factor)});
  }
  static std::string at_most(to& x, const node& n) {
    return x.add("Min", {x.value(n.inputs[0]), x.number(n.factor)});
  }
  static std::string greater(to& x, const node& n) {
    return x.truth(x.add("Greater", {x.value(n.inputs[0]), x.value(n.inputs[1])}));
  }
  static std::string above(to& x, const node& n) {
    return x.truth(x.add("Greater", {x.value(n.inputs[0]), x.number(n.factor)}));
  }
  static std::string softmax(to& x, const node& n) {
    return x.add("Softmax", {x.value(n.inputs[0])}, {to::integer("axis", -1)});
  }
  static std::string sum(to& x, const node& n) {
    return x.reduced(n, counted(0, x.at(n.inputs[0]).shape.rank()));
  }
  static std::string sum_leading(to& x, const node& n) {
    return x.reduced(n, counted(0, x.at(n.inputs[0]).shape.rank() - 1));
  }
  static std::string sum_last(to& x, const node& n) {
    const auto rank = x.at(n.inputs[0]).shape.rank();
    return x.reduced(n, counted(rank - 1, rank));
  }
  static std::string sum_channels(to& x, const node& n) {
    auto axes = counted(0, x.at(n.inputs[0]).shape.rank());
    axes.erase(axes.begin() + 1);
    return x.reduced(n, axes);
  }
  static std::string broadcast(to& x, const node& n) {
    return x.expanded(x.value(n.inputs[0]), n.shape);
  }
  static std::string broadcast_last(to& x, const node& n) {
    const auto column = x.add("Unsqueeze", {x.value(n.inputs[0]), x.whole_numbers({-1})});
    return x.expanded(column, n.shape);
  }
  static std::string broadcast_channels(to& x, const node& n) {
    return x.expanded(x.per_channel(n.inputs[0], n.shape.rank()), n.shape);
  }
  static std::string multiply_channels(to& x, const node& n) {
    const auto factors = x.per_channel(n.inputs[1], n.shape.rank());
    return x.add("Mul", {x.value(n.inputs[0]), factors});
  }

  static const row& of(operation x) noexcept {
    static constexpr row all[] = {
      refused(op::placeholder,
              "the output depends on this input, but only the features can be an input"),
      by<&to::stored>(op::variable),
      by<&to::constant>(op::constant),
      by<&to::matmul>(op::matmul),
      by<&to::biased>(op::add_bias),
      {op::sparse_matmul, "MatMul"}, // the input of the ONNX model is dense
      refused(op::sparse_matmul_gradient, no_operator),
      // element by element
      {op::add, "Add"},
      {op::subtract, "Sub"},
      {op::multiply, "Mul"},
      {op::scale, {}, scale},
      {op::divide, "Div"},
      {op::offset, {}, offset},
      {op::exp, "Exp"},
      {op::log, "Log"},
      {op::square_root, "Sqrt"},
      {op::absolute, "Abs"},
      {op::sign, "Sign"},
      {op::erf, "Erf"},
      by<&to::erfc>(op::erfc),
      {op::sine, "Sin"},
      {op::cosine, "Cos"},
      {op::round, "Round"},
      by<&to::gelu>(op::gelu),
      {op::softplus, "Softplus"},
      {op::relu, "Relu"},
      {op::leaky_relu, {}, leaky_relu},
      {op::tanh, "Tanh"},
      {op::sigmoid, "Sigmoid"},
      refused(op::relu_gradient, no_operator),
      refused(op::leaky_relu_gradient, no_operator),
      refused(op::tanh_gradient, no_operator),
      refused(op::sigmoid_gradient, no_operator),
      refused(op::gelu_gradient, no_operator),
      {op::maximum, "Max"},
      {op::minimum, "Min"},
      {op::at_least, {}, at_least},
      {op::at_most, {}, at_most},
      {op::greater, {}, greater},
      {op::above, {}, above},
      by<&to::select>(op::select),
      refused(op::cast, "models are exported in float32"),
      refused(op::elementwise, "only plans contain it"),
      // reductions and broadcasts
      {op::sum, {}, sum},
      {op::sum_leading, {}, sum_leading},
      {op::sum_last, {}, sum_last},
      {op::broadcast, {}, broadcast},
      {op::broadcast_leading, {}, broadcast},
      {op::broadcast_last, {}, broadcast_last},
      // losses
      {op::softmax, {}, softmax},
      refused(op::softmax_cross_entropy, is_loss),
      refused(op::softmax_cross_entropy_gradient, is_loss),
      refused(op::softmax_correct, is_loss),
      refused(op::binary_correct, is_loss),
      refused(op::squared_error, is_loss),
      by<&to::to_float>(op::to_float),
      refused(op::dropout, "a model in use has no dropout"),
      // images
      by<&to::convolve>(op::conv2d),
      by<&to::convolve>(op::conv2d_input_gradient),
      refused(op::conv2d_weight_gradient, no_operator),
      by<&to::biased>(op::add_channel_bias),
      {op::sum_channels, {}, sum_channels},
      {op::broadcast_channels, {}, broadcast_channels},
      {op::multiply_channels, {}, multiply_channels},
      refused(op::channel_moments, over_samples),
      refused(op::normalize_channels, over_samples),
      refused(op::normalize_channels_gradient, over_samples),
      refused(op::summed_mean, over_samples),
      refused(op::summed_variance, over_samples),
      by<&to::max_pooled>(op::max_pool_select),
      refused(op::max_pool_gradient, no_operator),
      by<&to::pooled>(op::average_pool),
      refused(op::average_pool_gradient, no_operator),
      // sequences
      by<&to::transposed>(op::transpose),
      by<&to::batched_product>(op::batched_matmul),
      by<&to::sliced>(op::slice),
      by<&to::placed>(op::place),
      by<&to::reversed>(op::reverse),
      by<&to::joined>(op::concat),
      by<&to::blended>(op::blend),
      {op::embedding, "Gather"},
      refused(op::embedding_gradient, no_operator),
      by<&to::normalize_rows>(op::normalize_rows),
      refused(op::normalize_rows_gradient, no_operator),
      {op::multiply_rows, "Mul"},
      by<&to::causal_softmax>(op::causal_softmax),
      by<&to::attention>(op::attention),
      refused(op::attention_statistics, no_operator),
      refused(op::attention_gradient, no_operator),
      refused(op::recurrent, "ONNX has it only with a projection of the inputs by a matrix"),
      refused(op::recurrent_gradient, no_operator),
      by<&to::reshaped>(op::reshape),
      {op::stop_gradient, "Identity"},
    };
    // The rows, indexed by operation.
    static constexpr auto table = [] {
      std::array<row, operation_count> result{};
      for (const auto& each : all)
        result[static_cast<std::size_t>(each.op)] = each;
      return result;
    }();
    return table[static_cast<std::size_t>(x)];
  }
};

const onnx_export_row& onnx_export_row_of(operation op) noexcept {
  return onnx_export_rows::of(op);
}

/// Converts truth values to the numbers 0 and 1.
std::string onnx_exporter::truth(const std::string& x) {
  return add("Cast", {x}, {integer("to", onnx::TensorProto::FLOAT)});
}

std::string onnx_exporter::gelu(const node& n) {
  const auto x = value(n.inputs[0]);
  const auto tail = add("Erf", {add("Mul", {x, number(std::sqrt(0.5))})});
  return add("Mul", {add("Mul", {x, add("Add", {tail, number(1)})}), number(0.5)});
}

// The formula of cpu::erfc. 1 - Erf(x) would lose the digits of small results.
std::string onnx_exporter::erfc(const node& n) {
  const auto x = value(n.inputs[0]);
  const auto a = add("Min", {add("Abs", {x}), number(9.5)});
  const auto q = add("Div", {add("Sub", {a, number(2)}), add("Add", {a, number(2)})});
  auto p = number(0);
  cpu::erfc_coefficients([&](float c) { p = add("Add", {add("Mul", {p, q}), number(double{c})}); });
  const auto below = add("Exp", {add("Neg", {add("Mul", {a, a})})});
  const auto share =
    add("Div", {add("Add", {p, number(1)}), add("Add", {add("Mul", {a, number(2)}), number(1)})});
  const auto tail = add("Mul", {share, below});
  return add("Where", {add("Less", {x, number(0)}), add("Sub", {number(2), tail}), tail});
}

std::string onnx_exporter::select(const node& n) {
  const auto condition = add("Greater", {value(n.inputs[0]), number(0)});
  return add("Where", {condition, value(n.inputs[1]), value(n.inputs[2])});
}

std::string onnx_exporter::to_float(const node& n) {
  return reshaped(truth(value(n.inputs[0])), n.shape);
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
    auto axes = counted(0, at(id).shape.rank());
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return add("Transpose", {value(id)}, {integers("perm", axes)});
  };
  const auto left = operand(n.inputs[0], n.transpose_a);
  return add("MatMul", {left, operand(n.inputs[1], n.transpose_b)});
}

std::string onnx_exporter::biased(const node& n) {
  const auto& first = at(n.inputs[0]);
  const bool together = absorbed_.contains(n.inputs[0]);
  if (together && batch_norm_at(n) != nullptr)
    return batch_normalized(n);
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

std::string onnx_exporter::reduced(const node& n, const std::vector<std::int64_t>& axes) {
  if (axes.empty())
    return add("Identity", {value(n.inputs[0])});
  if (at(n.inputs[0]).shape.has_batch() && axes[0] == 0)
    refuse(n, std::string{over_samples});
  return add("ReduceSum", {value(n.inputs[0]), whole_numbers(axes)}, {integer("keepdims", 0)});
}

std::string onnx_exporter::normalized(const node& n, const std::string& gain,
                                      const std::string& bias) {
  const auto ones = expanded(number(1), {n.shape.last()});
  std::vector<std::string> inputs{value(n.inputs[0]), gain.empty() ? ones : gain};
  if (!bias.empty())
    inputs.push_back(bias);
  return add("LayerNormalization", inputs, {integer("axis", -1), real("epsilon", n.factor)});
}

} // namespace troupe
