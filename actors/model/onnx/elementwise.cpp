// ONNX's operators that work element by element.

#include "actors/model/onnx/node.hpp"
#include "kernels/graph/operations.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace troupe {

namespace {

/// Applies f to the only input, a tensor or a constant.
template <class Tensor, class Number>
void unary(onnx_node& node, Tensor on_tensor, Number on_number) {
  const auto& v = node.input(0);
  if (!v.known) {
    node.set({on_tensor(v.x), v.batch_at});
    return;
  }
  auto result = *v.known;
  std::ranges::transform(result.values, result.values.begin(), on_number);
  node.set(std::move(result));
}

/// Like the function above, but a constant becomes a tensor of the graph.
template <class Tensor>
void unary(onnx_node& node, Tensor on_tensor) {
  const auto& v = node.input(0);
  node.set({on_tensor(node.tensor(0)), v.batch_at});
}

void absolute(onnx_node& node) {
  unary(
    node, [](expression x) { return troupe::absolute(x); }, [](double x) { return std::abs(x); });
}

void negative(onnx_node& node) {
  unary(
    node, [](expression x) { return scale(x, -1); }, [](double x) { return -x; });
}

void square_root(onnx_node& node) {
  unary(
    node, [](expression x) { return troupe::square_root(x); },
    [](double x) { return std::sqrt(x); });
}

expression reciprocal_of(expression x) {
  const auto dims = x.shape(); // a copy: adding nodes invalidates references
  return x.owner().constant(1, dims) / x;
}

void reciprocal(onnx_node& node) {
  unary(node, reciprocal_of, [](double x) { return 1 / x; });
}

/// exp(x) - 1 for x <= 0, accurate near 0: 2 t / (1 - t), t = tanh(x / 2).
expression exp_minus_one(expression x) {
  const auto t = tanh(scale(x, 0.5));
  return scale(t, 2) / offset(scale(t, -1), 1);
}

/// alpha (exp(x / width) - 1) for x below 0, otherwise x. As in PyTorch, the gradient at 0 is that
/// of the first case. (at_most(x, 0) has no gradient at 0, but minimum(0, x) has.)
expression elu_of(expression x, double alpha, double width = 1) {
  const auto zero = x.owner().constant(0, shape{x.shape()});
  const auto below = scale(minimum(zero, x), 1 / width);
  const auto change = width > 0 ? exp_minus_one(below) : offset(exp(below), -1);
  return relu(x) + scale(change, alpha);
}

/// min(max(x, low), high).
expression clipped(expression x, double low, double high) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (low != -infinity)
    x = at_least(x, low);
  return high != infinity ? at_most(x, high) : x;
}

void clip(onnx_node& node) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto low = node.real("min", -infinity);
  auto high = node.real("max", infinity);
  if (node.has_input(1))
    low = node.number_of(1, "lower limit");
  if (node.has_input(2))
    high = node.number_of(2, "upper limit");
  // Exporters write the largest float if there is no limit.
  constexpr double largest = std::numeric_limits<float>::max();
  const auto& v = node.input(0);
  const bool whole = v.known && v.known->type == onnx_constant::kind::integer;
  if (low <= -largest)
    low = -infinity;
  if (high >= largest)
    high = infinity;
  unary(
    node, [&](expression x) { return clipped(x, low, high); },
    [&](double x) {
      // x may be a multiple of the number of samples, which is unknown but at least 1. If one of
      // the limits could apply to x, the result is unknown (NaN).
      const auto times = whole ? onnx_constant::batches(x) : 0;
      if (times != 0 && (times < 0 || low > 1 || high != infinity))
        return std::numeric_limits<double>::quiet_NaN();
      return std::min(std::max(x, low), high);
    });
}

void elu(onnx_node& node) {
  const auto alpha = node.real("alpha", 1);
  unary(node, [&](expression x) { return elu_of(x, alpha); });
}

void selu(onnx_node& node) {
  const auto alpha = node.real("alpha", 1.67326319217681884765625);
  const auto gamma = node.real("gamma", 1.05070102214813232421875);
  unary(node, [&](expression x) { return scale(elu_of(x, alpha), gamma); });
}

void celu(onnx_node& node) {
  const auto alpha = node.real("alpha", 1);
  if (alpha == 0)
    node.refuse("attribute \"alpha\" is 0");
  unary(node, [&](expression x) { return elu_of(x, alpha, alpha); });
}

void leaky_relu(onnx_node& node) {
  const auto slope = node.real("alpha", 0.01);
  unary(node, [&](expression x) { return slope == 0 ? relu(x) : troupe::leaky_relu(x, slope); });
}

void hard_sigmoid(onnx_node& node) {
  const auto alpha = node.real("alpha", 0.2);
  const auto beta = node.real("beta", 0.5);
  unary(node, [&](expression x) { return clipped(offset(scale(x, alpha), beta), 0, 1); });
}

void hard_swish(onnx_node& node) {
  unary(node, [](expression x) { return x * clipped(offset(scale(x, 1.0 / 6), 0.5), 0, 1); });
}

void softsign(onnx_node& node) {
  unary(node, [](expression x) { return x / offset(troupe::absolute(x), 1); });
}

void gelu(onnx_node& node) {
  const auto how = node.text("approximate", "none");
  if (how != "none" && how != "tanh")
    node.refuse("attribute \"approximate\" is \"" + how + "\"; expected none or tanh");
  unary(node, [&](expression x) {
    if (how == "none")
      return troupe::gelu(x);
    // (1 + tanh(y)) / 2 is computed as sigmoid(2 y), which keeps the digits of small results. x is
    // clipped to [-20, 20], because the cube of a large x would make the gradient NaN. Clipping
    // does not change the result: the sigmoid is 0 or 1 there.
    const auto z = clipped(x, -20, 20);
    const auto inner = z + scale(z * z * z, 0.044715);
    return x * sigmoid(scale(inner, 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi));
  });
}

/// x tanh(log(1 + exp(x))).
void mish(onnx_node& node) {
  unary(node, [](expression x) { return x * tanh(softplus(x)); });
}

/// x / (1 + exp(-alpha x)).
void swish(onnx_node& node) {
  const auto alpha = node.real("alpha", 1);
  unary(node, [&](expression x) { return x * sigmoid(alpha == 1 ? x : scale(x, alpha)); });
}

/// slope * x where x is negative, otherwise x. Only the negative part of x is multiplied, and the
/// product is selected only where x is negative. So an infinite x or slope affects neither the
/// result nor the gradient where x is not negative.
void prelu(onnx_node& node) {
  const auto& v = node.input(0);
  const auto x = node.tensor(0);
  const onnx_value below{at_most(x, 0), v.batch_at};
  auto slope = node.input(1);
  if (node.version() < 7 && slope.rank() == 1 && slope.dims()[0] != 1) {
    // The slope has one value per channel.
    auto dims = slope.dims();
    dims.resize(std::max<std::size_t>(v.rank(), 2) - 1, 1);
    slope = with_dims(node, slope, dims);
  }
  const auto scaled = node.combine(arithmetic::multiply, below, slope);
  if (scaled.dims() != v.dims())
    node.refuse("the slope, of shape " + shape_text(node.input(1).dims())
                + ", does not fit the input, of shape " + shape_text(v.dims()));
  node.set({select(above(scale(x, -1), 0), scaled.x, x), v.batch_at});
}

/// The second operand, in a shape that broadcasts with the first operand. Before version 7, the
/// second operand may begin at any dimension of the first operand: the attribute "axis" is the
/// number of this dimension. Newer versions align the last dimensions.
onnx_value second_operand(onnx_node& node) {
  const auto& b = node.input(1);
  if (node.version() >= 7)
    return b;
  node.ignore("broadcast");
  node.ignore("axis");
  const auto rank = node.input(0).rank();
  if (!node.has("axis") || b.rank() >= rank)
    return b;
  const auto axis = node.axis(node.integer("axis", 0), rank);
  auto dims = b.dims();
  if (axis + dims.size() > rank)
    node.refuse("attribute \"axis\" is beyond the dimensions of the first operand");
  dims.resize(rank - axis, 1);
  return with_dims(node, b, dims);
}

template <arithmetic how>
void binary(onnx_node& node) {
  const auto b = second_operand(node);
  node.set(node.combine(how, node.input(0), b));
}

onnx_value sum_of_inputs(onnx_node& node) {
  auto result = node.input(0);
  for (std::size_t i = 1; i < node.inputs(); ++i)
    result = node.combine(arithmetic::add, result, node.input(i));
  return result;
}

template <arithmetic how>
void extreme(onnx_node& node) {
  auto result = node.input(0);
  for (std::size_t i = 1; i < node.inputs(); ++i)
    result = node.combine(how, result, node.input(i));
  node.set(result);
}

void sum(onnx_node& node) {
  node.set(sum_of_inputs(node));
}

void mean(onnx_node& node) {
  onnx_constant count;
  count.values = {static_cast<double>(node.inputs())};
  node.set(node.combine(arithmetic::divide, sum_of_inputs(node), count));
}

/// The negation of a truth value, which is 1 or 0.
expression not_of(expression x) {
  return offset(scale(x, -1), 1);
}

/// 1 if x is a number, 0 if it is NaN.
expression is_number(expression x) {
  return above(troupe::absolute(x), -1);
}

expression power(onnx_node& node, expression x, double exponent);

/// x^exponent, where the exponent is not a whole number: x^n exp(f log(x)), where n is a whole
/// number and f the rest. For a positive exponent, f is between 0 and 1, which keeps more digits;
/// for a negative one, n is 0. For x = 0, the gradient is 0; for x < 0, the result is NaN. The
/// logarithm gets 1 instead of 0, because its gradient at 0 is infinite.
expression real_power(onnx_node& node, expression x, double exponent) {
  const auto whole = std::max(0.0, std::floor(exponent));
  const auto is_zero = not_of(above(troupe::absolute(x), 0)) * is_number(x);
  const shape dims = x.shape(); // a copy: adding nodes invalidates references
  auto& g = x.owner();
  const auto base = select(is_zero, g.constant(1, dims), x);
  const auto part = exp(scale(log(base), exponent - whole));
  const auto at_zero = exponent > 0 ? 0 : std::numeric_limits<double>::infinity();
  return select(is_zero, g.constant(at_zero, dims),
                whole == 0 ? part : power(node, x, whole) * part);
}

expression power(onnx_node& node, expression x, double exponent) {
  constexpr double most = 16;
  if (!(std::abs(exponent) <= most))
    node.refuse("the exponent is " + number_text(exponent) + "; expected a number from -16 to 16");
  if (exponent == 0) {
    const auto dims = x.shape();        // a copy: adding nodes invalidates references
    return x.owner().constant(1, dims); // 1 even if x is NaN
  }
  // Adding 0 turns -0 into 0, so that the result is plus infinity, not minus infinity.
  if (exponent == -0.5)
    return reciprocal_of(troupe::square_root(offset(x, 0)));
  if (exponent == 0.5)
    return troupe::square_root(x);
  if (exponent != std::trunc(exponent))
    return real_power(node, x, exponent);
  // Computes (1 / x)^n instead of 1 / x^n. If x^n overflowed, the gradient would be 0 times
  // infinity.
  if (exponent < 0)
    return power(node, reciprocal_of(x), -exponent);
  auto result = x;
  for (int i = 1; i < static_cast<int>(exponent); ++i)
    result = result * x;
  return result;
}

void power(onnx_node& node) {
  const auto& x = node.input(0);
  if (x.known && node.input(1).known) {
    const bool whole = x.known->type == onnx_constant::kind::integer;
    const bool whole_exponent = node.input(1).known->type == onnx_constant::kind::integer;
    // A constant must give the same result as a tensor. For the base -infinity and an exponent that
    // is not a whole number, the graph gives NaN, but std::pow does not.
    // A power of the size of the batch is unknown (NaN), except for the exponents 0 and 1.
    const auto f = [&](double a, double b) {
      const bool real = b != std::trunc(b);
      const bool of_batch = (whole && onnx_constant::batches(a) != 0)
        || (whole_exponent && onnx_constant::batches(b) != 0);
      if (of_batch && b != 0)
        return b == 1 ? a : std::nan("");
      return real && a == -std::numeric_limits<double>::infinity() ? std::nan("") : std::pow(a, b);
    };
    node.set(troupe::combine(*x.known, *node.input(1).known, f, node.limit()));
    return;
  }
  node.ignore("broadcast");
  node.set({power(node, node.tensor(0), node.number_of(1, "exponent")), x.batch_at});
}

// -- comparisons and truth, which is 1 or 0 -----------------------------------------------------

/// a <= b; false if one of them is NaN.
expression at_most_of(expression a, expression b) {
  return not_of(greater(a, b)) * is_number(maximum(a, b));
}

/// a == b; false if at least one of them is NaN.
expression equal(expression a, expression b) {
  return at_most_of(a, b) * not_of(greater(b, a));
}

/// True if x is a multiple of the number of samples, and y is 0 or has the opposite sign. The
/// comparison of x and y then does not depend on the number of samples.
bool beyond(double x, double y) {
  const auto times = onnx_constant::batches(x);
  return (times > 0 && y <= 0) || (times < 0 && y >= 0);
}

/// True if the two numbers compare in the same way for every size of the batch.
bool comparable(double x, double y) {
  return (onnx_constant::is_number(x) && onnx_constant::is_number(y))
    || (onnx_constant::batches(x) != 0 && onnx_constant::batches(y) != 0) || beyond(x, y)
    || beyond(y, x);
}

/// Applies f to each pair of elements. `on_numbers` does the same for constants.
template <class Tensors, class Numbers>
void compare(onnx_node& node, Tensors f, Numbers on_numbers) {
  const auto& a = node.input(0);
  const auto& b = node.input(1);
  if (a.known && b.known) {
    const bool whole = a.known->type == onnx_constant::kind::integer;
    auto result = troupe::combine(
      *a.known, *b.known,
      [&](double x, double y) {
        if (whole && !comparable(x, y))
          node.refuse("the result depends on the size of the batch, which is known only when the "
                      "model runs");
        return on_numbers(x, y) ? 1.0 : 0.0;
      },
      node.limit());
    result.type = onnx_constant::kind::boolean;
    node.set(std::move(result));
    return;
  }
  const auto [x, y, batch_at] = aligned(as_real(node, a), as_real(node, b), node.target());
  const auto dims = common_shape(x.shape(), y.shape());
  const auto left = expand(x, dims);
  onnx_value result{f(left, expand(y, dims)), batch_at};
  result.is_truth = true;
  node.set(std::move(result));
}

void logical_not(onnx_node& node) {
  const auto& v = node.input(0);
  if (!v.known) {
    onnx_value result{not_of(v.x), v.batch_at};
    result.is_truth = true;
    node.set(std::move(result));
    return;
  }
  auto result = *v.known;
  for (auto& x : result.values)
    x = x == 0 ? 1 : 0;
  node.set(std::move(result));
}

void is_nan(onnx_node& node) {
  const auto& v = node.input(0);
  if (!v.known) {
    onnx_value result{not_of(is_number(v.x)), v.batch_at};
    result.is_truth = true;
    node.set(std::move(result));
    return;
  }
  auto result = *v.known;
  if (result.type != onnx_constant::kind::real)
    node.refuse("the operand is not a tensor of real numbers");
  for (auto& x : result.values)
    x = std::isnan(x) ? 1 : 0;
  result.type = onnx_constant::kind::boolean;
  node.set(std::move(result));
}

/// x where it is above alpha, otherwise 0.
void thresholded_relu(onnx_node& node) {
  const auto alpha = node.real("alpha", 1);
  unary(node, [&](expression x) {
    const auto zero = x.owner().constant(0, shape{x.shape()});
    return select(above(x, alpha), x, zero);
  });
}

/// x + bias where x is below -lambd, x - bias where x is above lambd, otherwise 0.
void shrink(onnx_node& node) {
  const auto bias = node.real("bias", 0);
  const auto limit = node.real("lambd", 0.5);
  unary(node, [&](expression x) {
    const auto zero = x.owner().constant(0, shape{x.shape()});
    const auto below = select(above(scale(x, -1), limit), offset(x, bias), zero);
    return select(above(x, limit), offset(x, -bias), below);
  });
}

/// The elements of the constant `from`, with 0 where the mask is 0.
onnx_constant taken(const onnx_node& node, const onnx_constant& mask, const onnx_constant& from) {
  auto result = troupe::combine(
    mask, from, [](double m, double x) { return m == 0 ? 0 : x; }, node.limit());
  result.type = from.type;
  return result;
}

void where(onnx_node& node) {
  const auto mask = as_real(node, node.input(0));
  const auto& a = node.input(1);
  const auto& b = node.input(2);
  if (a.known && b.known && mask.known) {
    auto others = *mask.known;
    for (auto& x : others.values)
      x = x == 0 ? 1 : 0;
    node.set(node.combine(arithmetic::add, taken(node, *mask.known, *a.known),
                          taken(node, others, *b.known)));
    return;
  }
  auto& g = node.target();
  const auto both = aligned(a, b, g);
  const auto [m, x, batch_at] =
    aligned(mask, {expand(both.a, common_shape(both.a.shape(), both.b.shape())), both.batch_at}, g);
  const auto dims = common_shape(m.shape(), x.shape());
  const auto y = aligned(mask, {both.b, both.batch_at}, g).b;
  const auto condition = expand(m, dims);
  const auto first = expand(x, dims);
  node.set({select(condition, first, expand(y, dims)), batch_at});
}

} // namespace

onnx_value as_real(const onnx_node& node, const onnx_value& v) {
  if (v.known) {
    auto result = *v.known;
    if (result.type == onnx_constant::kind::integer
        && !std::ranges::all_of(result.values, onnx_constant::is_number))
      node.refuse("the size of the batch becomes a real number");
    result.type = onnx_constant::kind::real;
    return result;
  }
  const auto dims = v.x.shape(); // a copy: adding nodes invalidates references
  return v.x.node().type == dtype::int32 ? onnx_value{to_float(v.x, dims), v.batch_at} : v;
}

void add_elementwise_operators(onnx_operators& all) {
  all["Abs"] = {absolute, 1};
  all["Neg"] = {negative, 1};
  all["Sqrt"] = {square_root, 1};
  all["Reciprocal"] = {reciprocal, 1};
  all["Exp"] = {[](onnx_node& node) { unary(node, [](expression x) { return exp(x); }); }, 1};
  all["Log"] = {[](onnx_node& node) { unary(node, [](expression x) { return log(x); }); }, 1};
  all["Sign"] = {[](onnx_node& node) { unary(node, [](expression x) { return sign(x); }); }, 9};
  all["Erf"] = {[](onnx_node& node) { unary(node, [](expression x) { return erf(x); }); }, 9};
  // ONNX does not define the operator Erfc, but tf2onnx writes it for GELU.
  all["Erfc"] = {[](onnx_node& node) { unary(node, [](expression x) { return erfc(x); }); }, 0,
                 "not of ONNX; tf2onnx writes it"};
  all["Softplus"] = {[](onnx_node& node) { unary(node, [](expression x) { return softplus(x); }); },
                     1};
  all["Relu"] = {[](onnx_node& node) { unary(node, [](expression x) { return relu(x); }); }, 1};
  all["Tanh"] = {[](onnx_node& node) { unary(node, [](expression x) { return tanh(x); }); }, 1};
  all["Sigmoid"] = {[](onnx_node& node) { unary(node, [](expression x) { return sigmoid(x); }); },
                    1};
  all["Clip"] = {clip, 1, "limits are constants"};
  all["Elu"] = {elu, 1};
  all["Selu"] = {selu, 1};
  all["Celu"] = {celu, 12};
  all["LeakyRelu"] = {leaky_relu, 1};
  all["HardSigmoid"] = {hard_sigmoid, 1};
  all["HardSwish"] = {hard_swish, 14};
  all["Softsign"] = {softsign, 1};
  all["Gelu"] = {gelu, 20};
  all["Mish"] = {mish, 18};
  all["PRelu"] = {prelu, 1};
  all["Swish"] = {swish, 24};
  all["Add"] = {binary<arithmetic::add>, 1};
  all["Sub"] = {binary<arithmetic::subtract>, 1};
  all["Mul"] = {binary<arithmetic::multiply>, 1};
  all["Div"] = {binary<arithmetic::divide>, 1};
  all["Sum"] = {sum, 1};
  all["Mean"] = {mean, 1};
  all["Max"] = {extreme<arithmetic::maximum>, 1};
  all["Min"] = {extreme<arithmetic::minimum>, 1};
  all["Pow"] = {power, 1, "the exponent is a constant from -16 to 16"};
  all["Equal"] = {[](onnx_node& node) {
                    compare(
                      node, [](expression a, expression b) { return equal(a, b); },
                      [](double a, double b) { return a == b; });
                  },
                  1, "whole numbers of the input are exact up to 2^24"};
  all["Less"] = {[](onnx_node& node) {
                   compare(
                     node, [](expression a, expression b) { return greater(b, a); },
                     [](double a, double b) { return a < b; });
                 },
                 1, "whole numbers of the input are exact up to 2^24"};
  all["LessOrEqual"] = {[](onnx_node& node) {
                          compare(
                            node, [](expression a, expression b) { return at_most_of(a, b); },
                            [](double a, double b) { return a <= b; });
                        },
                        12, "whole numbers of the input are exact up to 2^24"};
  all["Greater"] = {[](onnx_node& node) {
                      compare(
                        node, [](expression a, expression b) { return greater(a, b); },
                        [](double a, double b) { return a > b; });
                    },
                    1, "whole numbers of the input are exact up to 2^24"};
  all["GreaterOrEqual"] = {[](onnx_node& node) {
                             compare(
                               node, [](expression a, expression b) { return at_most_of(b, a); },
                               [](double a, double b) { return a >= b; });
                           },
                           12, "whole numbers of the input are exact up to 2^24"};
  all["And"] = {[](onnx_node& node) {
                  compare(
                    node, [](expression a, expression b) { return a * b; },
                    [](double a, double b) { return a != 0 && b != 0; });
                },
                1};
  all["Or"] = {[](onnx_node& node) {
                 compare(
                   node, [](expression a, expression b) { return maximum(a, b); },
                   [](double a, double b) { return a != 0 || b != 0; });
               },
               1};
  all["Xor"] = {[](onnx_node& node) {
                  compare(
                    node, [](expression a, expression b) { return absolute(a - b); },
                    [](double a, double b) { return (a != 0) != (b != 0); });
                },
                1};
  all["Not"] = {logical_not, 1};
  all["IsNaN"] = {is_nan, 9};
  all["ThresholdedRelu"] = {thresholded_relu, 10};
  all["Shrink"] = {shrink, 9};
  all["Where"] = {where, 9};
}

} // namespace troupe
