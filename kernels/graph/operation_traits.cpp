#include "kernels/graph/operation_traits.hpp"

#include "kernels/graph/channel_operations.hpp"
#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/reverse_mode.hpp"
#include "kernels/graph/sequence_operations.hpp"

#include <algorithm>
#include <array>
#include <numbers>
#include <span>

namespace troupe {

namespace {

using traits = operation_traits;
using step = const gradient_step&;

/// Casts a tensor of 16 bits to float32. Other tensors stay as they are. Used if many elements of
/// the tensor are multiplied and then added up.
expression in_full(expression x) {
  return is_narrow(x.node().type) ? x.owner().casted(x, dtype::float32) : x;
}
using sizes = const operation_sizes&;
using kind = operation_kind;
using op = operation;
namespace rules = gradient_rules;

// -- FLOPs

/// n FLOPs for each element of the first input.
template <std::uint64_t n>
std::uint64_t each(sizes s) {
  return n * s.of(*s.inputs[0]);
}

std::uint64_t window_size(sizes s) {
  return static_cast<std::uint64_t>(s.window.height * s.window.width);
}

/// The second input of blend is its table, a constant (n, taps, 2). Each element of the result is a
/// sum of `taps` terms.
std::uint64_t blend(sizes s) {
  return 2 * static_cast<std::uint64_t>((*s.inputs[1])[1]) * s.of(*s.output);
}

/// Each element of `result` is a sum of products with the kernel (filters, C / groups, height,
/// width). For the gradients of a convolution, `result` and `kernel` are those of the convolution
/// itself.
std::uint64_t convolution(sizes s, const shape& result, const shape& kernel) {
  return 2 * s.of(result) * static_cast<std::uint64_t>(kernel[1] * kernel[2] * kernel[3]);
}

std::uint64_t matmul(sizes s) {
  const auto last = static_cast<std::uint64_t>(s.inputs[0]->last());
  const auto inner = s.transpose_a ? s.of(*s.inputs[0]) / std::max<std::uint64_t>(last, 1) : last;
  return 2 * inner * s.of(*s.output);
}

std::uint64_t batched_matmul(sizes s) {
  const auto& a = *s.inputs[0];
  return 2 * static_cast<std::uint64_t>(a[a.rank() - (s.transpose_a ? 2 : 1)]) * s.of(*s.output);
}

/// The FLOPs of `products` matrix products between all queries and all keys, as if no key were
/// masked. `y` is the shape of the result of attention.
std::uint64_t attention(sizes s, const shape& y, std::uint64_t products) {
  const auto& keys = *s.inputs.back();
  return 2 * products * s.of(y) * static_cast<std::uint64_t>(keys[keys.rank() - 2]);
}

/// In each time step, each sample multiplies the state by the matrix w, and needs three more FLOPs
/// per gate and hidden unit.
std::uint64_t recurrent(sizes s, const shape& w) {
  const auto hidden = static_cast<std::uint64_t>(w.last());
  const auto gates = s.of(w) / std::max<std::uint64_t>(hidden, 1);
  return s.rows * static_cast<std::uint64_t>((*s.output)[1]) * gates * (2 * hidden + 3);
}

// -- gradients

/// The gradient rule of operations that pass no gradient to their inputs. These are leaves,
/// operations whose derivative is 0 (step functions, counts), and operations whose results are
/// never part of a loss.
void nothing(step) {}

/// The gradients of x + bias. The gradient of x is dy. The gradient of the bias is the sum of dy
/// over all dimensions except the dimension of the bias.
template <auto sum>
void biased(step s) {
  if (s.wants(1))
    s.give(1, sum(s.g));
  s.give(0, s.g);
}

void softmax(step s) {
  s.give(0, softmax_gradient(s.g, s.y));
}

/// The derivative of erf(x) is 2 / sqrt(pi) exp(-x^2). The derivative of erfc has the opposite
/// sign.
void error_function(step s, double sign) {
  const auto density = exp(scale(multiply(s.x(0), s.x(0)), -1));
  s.give(0, multiply(s.g, scale(density, sign * 2 * std::numbers::inv_sqrtpi)));
}

// -- rows

using rule = void (*)(step);
using count = std::uint64_t (*)(sizes);

constexpr traits row(op x, std::string_view name, count flops, rule gradient) {
  return {.op = x, .name = name, .gradient = gradient, .flops = flops};
}

constexpr traits row(op x, std::string_view name, rule gradient) {
  return row(x, name, nullptr, gradient);
}

/// A copy of the row in which one field has another value.
template <auto field, auto value>
constexpr traits with(traits x) {
  x.*field = value;
  return x;
}

constexpr auto in_place = with<&traits::in_place, true>;
constexpr auto product = with<&traits::precision, operation_precision::product>;
constexpr auto narrow = with<&traits::precision, operation_precision::same>;
constexpr auto as_first = with<&traits::precision, operation_precision::first>;
constexpr auto counting = with<&traits::counts_correct, true>;
constexpr auto sparse = with<&traits::takes_sparse, true>;
constexpr auto reading_part = with<&traits::reads_part, true>;
template <kind what>
constexpr auto of_kind = with<&traits::kind, what>;
template <std::size_t input>
constexpr auto keeping_type = with<&traits::keeps_type, input>;
template <std::size_t input>
constexpr auto reads_rows = with<&traits::names_read_rows, input>;
template <std::size_t input>
constexpr auto writes_rows = with<&traits::names_written_rows, input>;

constexpr traits wide_element(op x, std::string_view name, rule gradient) {
  return of_kind<kind::elementwise>(in_place(row(x, name, each<1>, gradient)));
}

constexpr traits element(op x, std::string_view name, rule gradient) {
  return narrow(wide_element(x, name, gradient));
}

constexpr traits elements[] = {
  element(op::add, "add", [](step s) { s.give(0, s.g), s.give(1, s.g); }),
  element(op::subtract, "subtract",
          [](step s) {
            s.give(0, s.g);
            if (s.wants(1))
              s.give(1, scale(s.g, -1));
          }),
  element(op::multiply, "multiply",
          [](step s) {
            if (s.wants(0))
              s.give(0, multiply(s.g, s.x(1)));
            if (s.wants(1))
              s.give(1, multiply(s.g, s.x(0)));
          }),
  element(op::scale, "scale", [](step s) { s.give(0, scale(s.g, s.node.factor)); }),
  element(op::divide, "divide",
          [](step s) {
            if (s.wants(0))
              s.give(0, divide(s.g, s.x(1)));
            if (s.wants(1))
              s.give(1, scale(divide(multiply(s.g, s.y), s.x(1)), -1));
          }),
  element(op::offset, "offset", [](step s) { s.give(0, s.g); }),
  wide_element(op::exp, "exp", [](step s) { s.give(0, multiply(s.g, s.y)); }),
  wide_element(op::log, "log", [](step s) { s.give(0, divide(s.g, s.x(0))); }),
  wide_element(op::square_root, "square_root",
               [](step s) { s.give(0, divide(scale(s.g, 0.5), s.y)); }),
  element(op::absolute, "absolute", [](step s) { s.give(0, multiply(s.g, sign(s.x(0)))); }),
  element(op::sign, "sign", nothing),
  wide_element(op::erf, "erf", [](step s) { error_function(s, 1); }),
  wide_element(op::erfc, "erfc", [](step s) { error_function(s, -1); }),
  wide_element(op::sine, "sine", [](step s) { s.give(0, multiply(s.g, cosine(s.x(0)))); }),
  wide_element(op::cosine, "cosine",
               [](step s) { s.give(0, scale(multiply(s.g, sine(s.x(0))), -1)); }),
  element(op::round, "round", nothing),
  element(op::gelu, "gelu", [](step s) { s.give(0, gelu_gradient(s.g, s.x(0))); }),
  wide_element(op::softplus, "softplus", [](step s) { s.give(0, multiply(s.g, sigmoid(s.x(0)))); }),
  element(op::relu, "relu", [](step s) { s.give(0, relu_gradient(s.g, s.y)); }),
  element(op::leaky_relu, "leaky_relu",
          [](step s) { s.give(0, leaky_relu_gradient(s.g, s.y, s.node.factor)); }),
  element(op::tanh, "tanh", [](step s) { s.give(0, tanh_gradient(s.g, s.y)); }),
  element(op::sigmoid, "sigmoid", [](step s) { s.give(0, sigmoid_gradient(s.g, s.y)); }),
  // relu_gradient and leaky_relu_gradient are linear in dy. They are step functions of y, so y gets
  // no gradient.
  element(op::relu_gradient, "relu_gradient",
          [](step s) {
            if (s.wants(0))
              s.give(0, relu_gradient(s.g, s.x(1)));
          }),
  element(op::leaky_relu_gradient, "leaky_relu_gradient",
          [](step s) {
            if (s.wants(0))
              s.give(0, leaky_relu_gradient(s.g, s.x(1), s.node.factor));
          }),
  // The derivatives of tanh_gradient, which is dy (1 - y^2).
  element(op::tanh_gradient, "tanh_gradient",
          [](step s) {
            if (s.wants(0))
              s.give(0, tanh_gradient(s.g, s.x(1)));
            if (s.wants(1))
              s.give(1, scale(multiply(multiply(s.g, s.x(0)), s.x(1)), -2));
          }),
  // The derivatives of sigmoid_gradient, which is dy (y - y^2).
  element(op::sigmoid_gradient, "sigmoid_gradient",
          [](step s) {
            if (s.wants(0))
              s.give(0, sigmoid_gradient(s.g, s.x(1)));
            if (!s.wants(1))
              return;
            const auto p = multiply(s.g, s.x(0));
            s.give(1, subtract(p, scale(multiply(p, s.x(1)), 2)));
          }),
  element(op::gelu_gradient, "gelu_gradient", rules::gelu_gradient),
  element(op::maximum, "maximum", [](step s) { rules::by_mask(s, greater(s.x(0), s.x(1)), 0, 1); }),
  element(op::minimum, "minimum", [](step s) { rules::by_mask(s, greater(s.x(1), s.x(0)), 0, 1); }),
  element(op::at_least, "at_least",
          [](step s) { s.give(0, relu_gradient(s.g, above(s.x(0), s.node.factor))); }),
  // above() gives 1 for x > bound. at_most needs 1 for x < bound, which is -x > -bound.
  element(op::at_most, "at_most",
          [](step s) { s.give(0, relu_gradient(s.g, above(scale(s.x(0), -1), -s.node.factor))); }),
  element(op::greater, "greater", nothing),
  element(op::above, "above", nothing),
  element(op::select, "select", [](step s) { rules::by_mask(s, above(s.x(0), 0), 1, 2); }),
  // The gradient is not cast back to the type of x, because operations accept any mix of types.
  wide_element(op::cast, "cast", [](step s) { s.give(0, s.g); }),
  in_place(row(op::elementwise, "elementwise", nothing)),
};

constexpr traits general[] = {
  of_kind<kind::leaf>(row(op::placeholder, "placeholder", nothing)),
  of_kind<kind::leaf>(row(op::variable, "variable", nothing)),
  of_kind<kind::leaf>(row(op::constant, "constant", nothing)),
  product(row(op::matmul, "matmul", matmul, rules::matmul)),
  in_place(as_first(row(op::add_bias, "add_bias", each<1>, biased<troupe::sum_leading>))),
  reads_rows<0>(sparse(row(op::sparse_matmul, "sparse_matmul", rules::sparse_matmul))),
  writes_rows<0>(sparse(
    row(op::sparse_matmul_gradient, "sparse_matmul_gradient", rules::sparse_matmul_gradient))),
  row(op::sum, "sum", each<1>, [](step s) { s.give(0, broadcast(s.g, s.x(0).shape())); }),
  row(op::sum_leading, "sum_leading", each<1>,
      [](step s) { s.give(0, broadcast_leading(s.g, s.x(0).shape())); }),
  row(op::sum_last, "sum_last", each<1>,
      [](step s) { s.give(0, broadcast_last(s.g, s.x(0).shape())); }),
  row(op::broadcast, "broadcast", [](step s) { s.give(0, sum(s.g)); }),
  row(op::broadcast_leading, "broadcast_leading", [](step s) { s.give(0, sum_leading(s.g)); }),
  row(op::broadcast_last, "broadcast_last", [](step s) { s.give(0, sum_last(s.g)); }),
  // 4 FLOPs per element: subtract the maximum, exp, sum, divide.
  in_place(row(op::softmax, "softmax", each<4>, softmax)),
  of_kind<kind::softmax_loss>(in_place(
    row(op::softmax_cross_entropy, "softmax_cross_entropy", each<3>,
        [](step s) {
          s.give(0, times(softmax_cross_entropy_gradient(s.x(0), s.x(1), s.node.labels), s.g));
        }))),
  of_kind<kind::softmax_loss>(row(op::softmax_cross_entropy_gradient,
                                  "softmax_cross_entropy_gradient", each<4>,
                                  rules::softmax_cross_entropy_gradient)),
  of_kind<kind::softmax_loss>(
    counting(row(op::softmax_correct, "softmax_correct", each<1>, nothing))),
  counting(row(op::binary_correct, "binary_correct", each<1>, nothing)),
  // 3 FLOPs: difference, square, sum.
  row(op::squared_error, "squared_error", each<3>, rules::squared_error),
  row(op::to_float, "to_float", nothing),
  in_place(narrow(row(op::dropout, "dropout", each<1>,
                      [](step s) { s.give(0, dropout(s.g, s.node.factor, s.node.key)); }))),
  of_kind<kind::view>(
    narrow(row(op::reshape, "reshape", [](step s) { s.give(0, reshape(s.g, s.x(0).shape())); }))),
  of_kind<kind::view>(narrow(row(op::stop_gradient, "stop_gradient", nothing))),
};

constexpr traits images[] = {
  product(row(
    op::conv2d, "conv2d", [](sizes s) { return convolution(s, *s.output, *s.inputs[1]); },
    rules::conv2d)),
  product(row(
    op::conv2d_input_gradient, "conv2d_input_gradient",
    [](sizes s) { return convolution(s, *s.inputs[0], *s.inputs[1]); },
    rules::conv2d_input_gradient)),
  product(row(
    op::conv2d_weight_gradient, "conv2d_weight_gradient",
    [](sizes s) { return convolution(s, *s.inputs[1], *s.output); },
    rules::conv2d_weight_gradient)),
  in_place(
    as_first(row(op::add_channel_bias, "add_channel_bias", each<1>, biased<troupe::sum_channels>))),
  row(op::sum_channels, "sum_channels", each<1>,
      [](step s) { s.give(0, broadcast_channels(s.g, s.x(0).shape())); }),
  row(op::broadcast_channels, "broadcast_channels", [](step s) { s.give(0, sum_channels(s.g)); }),
  in_place(as_first(row(op::multiply_channels, "multiply_channels", each<1>,
                        [](step s) {
                          if (s.wants(1))
                            s.give(1, sum_channels(multiply(in_full(s.g), s.x(0))));
                          if (s.wants(0))
                            s.give(0, multiply_channels(s.g, s.x(1)));
                        }))),
  // 4 FLOPs: a sum for the mean; then difference, square and sum for the variance.
  row(op::channel_moments, "channel_moments", each<4>, nothing),
  in_place(as_first(row(op::normalize_channels, "normalize_channels", each<2>,
                        [](step s) {
                          if (s.wants(0))
                            s.give(0,
                                   normalize_channels_gradient(s.g, s.x(0), s.x(1), s.node.factor));
                        }))),
  // 8 FLOPs: two sums over the batch; then three products and three additions.
  in_place(as_first(
    row(op::normalize_channels_gradient, "normalize_channels_gradient", each<8>,
        [](step s) { s.refuse("is the gradient of a normalization over the batch, which"); }))),
  row(op::summed_mean, "summed_mean", nothing),
  row(op::summed_variance, "summed_variance", nothing),
  // max_pool_select is linear in v. It is a step function of x, so x gets no gradient.
  narrow(row(
    op::max_pool_select, "max_pool_select",
    [](sizes s) { return s.of(*s.output) * window_size(s); },
    [](step s) {
      if (s.wants(0))
        s.give(0, max_pool_gradient(s.g, s.x(1), s.node.window));
    })),
  // max_pool_gradient is linear in dy. It is a step function of x, so x gets no gradient.
  narrow(row(op::max_pool_gradient, "max_pool_gradient", each<1>,
             [](step s) {
               if (s.wants(0))
                 s.give(0, max_pool_select(s.g, s.x(1), s.node.window));
             })),
  narrow(row(
    op::average_pool, "average_pool", [](sizes s) { return s.of(*s.output) * window_size(s); },
    [](step s) { s.give(0, average_pool_gradient(s.g, s.node.window, s.x(0).shape())); })),
  narrow(row(
    op::average_pool_gradient, "average_pool_gradient",
    [](sizes s) { return s.of(*s.inputs[0]) * window_size(s); },
    [](step s) { s.give(0, average_pool(s.g, s.node.window)); })),
};

constexpr traits sequences[] = {
  narrow(row(op::transpose, "transpose",
             [](step s) {
               std::vector<std::size_t> back(s.node.axes.size());
               for (std::size_t i = 0; i < back.size(); ++i)
                 back[s.node.axes[i]] = i;
               s.give(0, transpose(s.g, back));
             })),
  product(row(op::batched_matmul, "batched_matmul", batched_matmul, rules::batched_matmul)),
  reading_part(narrow(row(op::slice, "slice",
                          [](step s) {
                            const auto begin = static_cast<std::int64_t>(s.node.axes[1]);
                            s.give(0, place(s.g, s.node.axes[0], begin, s.x(0).shape()));
                          }))),
  narrow(row(op::place, "place",
             [](step s) {
               const auto axis = s.node.axes[0];
               const auto begin = static_cast<std::int64_t>(s.node.axes[1]);
               s.give(0, slice(s.g, axis, begin, begin + s.x(0).shape()[axis]));
             })),
  narrow(row(op::reverse, "reverse", [](step s) { s.give(0, reverse(s.g, s.node.axes[0])); })),
  narrow(row(op::concat, "concat", rules::concat)),
  row(op::blend, "blend", blend, rules::blend),
  reads_rows<1>(reading_part(
    row(op::embedding, "embedding",
        [](step s) { s.give(0, embedding_gradient(s.g, s.x(1), s.x(0).shape()[0])); }))),
  writes_rows<1>(row(op::embedding_gradient, "embedding_gradient", each<1>,
                     [](step s) { s.give(0, embedding(s.g, s.x(1))); })),
  // 6 FLOPs: 4 for the moments, then a difference and a product.
  in_place(
    as_first(row(op::normalize_rows, "normalize_rows", each<6>,
                 [](step s) { s.give(0, normalize_rows_gradient(s.g, s.x(0), s.node.factor)); }))),
  // 14 FLOPs: the 8 of normalize_channels_gradient, and the 6 of normalize_rows.
  in_place(as_first(row(op::normalize_rows_gradient, "normalize_rows_gradient", each<14>,
                        rules::normalize_rows_gradient))),
  in_place(as_first(row(op::multiply_rows, "multiply_rows", each<1>,
                        [](step s) {
                          if (s.wants(0))
                            s.give(0, multiply_rows(s.g, s.x(1)));
                          if (s.wants(1))
                            s.give(1, sum_leading(multiply(in_full(s.g), s.x(0))));
                        }))),
  // The FLOPs include those of masked elements, which are half of the matrix.
  in_place(row(op::causal_softmax, "causal_softmax", each<4>, softmax)),
  of_kind<kind::attention>(product(row(
    op::attention, "attention", [](sizes s) { return attention(s, *s.output, 2); },
    rules::attention))),
  of_kind<kind::attention>(row(op::attention_statistics, "attention_statistics", nothing)),
  of_kind<kind::attention>(keeping_type<2>(product(row(
    op::attention_gradient, "attention_gradient",
    [](sizes s) { return attention(s, *s.inputs[0], 5); }, rules::attention_gradient)))),
  row(
    op::recurrent, "recurrent", [](sizes s) { return recurrent(s, *s.inputs[1]); },
    rules::recurrent),
  row(
    op::recurrent_gradient, "recurrent_gradient",
    [](sizes s) { return recurrent(s, *s.inputs[2]); },
    [](step s) { s.refuse("is a gradient of a recurrent layer, which"); }),
};

/// All rows, indexed by operation.
constexpr auto table = [] {
  std::array<traits, operation_count> result;
  for (const std::span<const traits> rows :
       {std::span<const traits>{elements}, {general}, {images}, {sequences}})
    for (const auto& x : rows)
      result[static_cast<std::size_t>(x.op)] = x;
  return result;
}();
static_assert(std::ranges::none_of(table, &std::string_view::empty, &traits::name),
              "an operation has no row");

} // namespace

const operation_traits& traits_of(operation x) noexcept {
  return table[static_cast<std::size_t>(x)];
}

std::string_view to_string(operation x) noexcept {
  return traits_of(x).name;
}

} // namespace troupe
