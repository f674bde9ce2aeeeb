// A second, simple implementation of every operation, to compare with. Plain loops in double
// compute all nodes up to the requested one.

#include "kernels/graph/operation_traits.hpp"
#include "tests/kernels/numeric.hpp"
#include "tests/kernels/reference_sequences.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace troupe::test {

namespace {

using values = std::vector<double>;

struct table {
  std::size_t rows;
  std::size_t columns;
};

table table_of(const shape& x, std::size_t batch) {
  if (x.rank() == 0)
    return {1, 1};
  const auto n = x.elements(batch);
  const auto last = x.rank() == 1 && x.has_batch() ? batch : static_cast<std::size_t>(x.last());
  return {last == 0 ? 0 : n / last, last};
}

values matmul(const node& n, const values& a, table ta, const values& b, table tb) {
  const auto m = n.transpose_a ? ta.columns : ta.rows;
  const auto inner = n.transpose_a ? ta.rows : ta.columns;
  const auto columns = n.transpose_b ? tb.rows : tb.columns;
  values c(m * columns);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t p = 0; p < inner; ++p)
        c[i * columns + j] += a[n.transpose_a ? p * ta.columns + i : i * ta.columns + p]
          * b[n.transpose_b ? j * tb.columns + p : p * tb.columns + j];
  return c;
}

values softmax(const values& x, table t) {
  values y(x.size());
  for (std::size_t r = 0; r < t.rows; ++r) {
    double total = 0;
    const auto* row = x.data() + r * t.columns;
    const double top = *std::max_element(row, row + t.columns);
    for (std::size_t j = 0; j < t.columns; ++j)
      total += y[r * t.columns + j] = std::exp(row[j] - top);
    for (std::size_t j = 0; j < t.columns; ++j)
      y[r * t.columns + j] /= total;
  }
  return y;
}

values classify(const node& n, const values& z, table t, const values& labels) {
  auto p = softmax(z, t);
  double loss = 0;
  double correct = 0;
  for (std::size_t r = 0; r < t.rows; ++r) {
    auto* row = p.data() + r * t.columns;
    const auto label = static_cast<std::ptrdiff_t>(labels[r]);
    const bool counts = labels[r] != n.labels.ignored.value_or(-1);
    correct += counts && std::max_element(row, row + t.columns) - row == label ? 1 : 0;
    for (std::ptrdiff_t j = 0; j < static_cast<std::ptrdiff_t>(t.columns); ++j) {
      const double smoothing = n.labels.smoothing;
      const double wanted =
        (j == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(t.columns);
      loss -= counts ? wanted * std::log(row[j]) : 0;
      row[j] = counts ? n.factor * (row[j] - wanted) : 0;
    }
  }
  if (n.op == operation::softmax_cross_entropy_gradient)
    return p;
  return {n.op == operation::softmax_correct ? correct : n.factor * loss};
}

/// True if dropout keeps element i in a run with seed 0.
bool stays(const node& n, std::size_t i) {
  const auto key = stream_key(0, {n.key});
  const auto mix = [](std::uint64_t h) {
    constexpr std::uint64_t word = 0xffffffff;
    h = ((h ^ (h >> 16)) * 0x7feb352d) & word;
    h = ((h ^ (h >> 15)) * 0x846ca68b) & word;
    return h ^ (h >> 16);
  };
  const auto h = mix(mix((i * 0x9e3779b9 + key) & 0xffffffff) ^ (key >> 32));
  return static_cast<double>(h >> 8) >= std::floor(n.factor * (1 << 24));
}

/// The value of an element-wise operation. Operands that do not exist are ignored.
double element(const node& n, double a, double b) {
  switch (n.op) {
  case operation::add:
    return a + b;
  case operation::subtract:
    return a - b;
  case operation::multiply:
    return a * b;
  case operation::scale:
    return n.factor * a;
  case operation::divide:
    return a / b;
  case operation::offset:
    return a + n.factor;
  case operation::exp:
    return std::exp(a);
  case operation::log:
    return std::log(a);
  case operation::square_root:
    return std::sqrt(a);
  case operation::absolute:
    return std::fabs(a);
  case operation::sign:
    return a > 0 ? 1 : a < 0 ? -1 : a;
  case operation::erf:
    return std::erf(a);
  case operation::erfc:
    return std::erfc(a);
  case operation::sine:
    return std::sin(a);
  case operation::cosine:
    return std::cos(a);
  case operation::round:
    return a - std::remainder(a, 1.0);
  case operation::gelu:
    return a * (1 + std::erf(a * std::sqrt(0.5))) / 2;
  case operation::gelu_gradient:
    return a
      * ((1 + std::erf(b * std::sqrt(0.5))) / 2
         + b * std::exp(-b * b / 2) / std::sqrt(2 * std::acos(-1.0)));
  case operation::softplus:
    return a > 0 ? a + std::log1p(std::exp(-a)) : std::log1p(std::exp(a));
  case operation::leaky_relu:
    return a > 0 ? a : n.factor * a;
  case operation::leaky_relu_gradient:
    return b > 0 ? a : n.factor * a;
  case operation::relu:
    return std::isnan(a) ? a : std::max(a, 0.0);
  case operation::tanh:
    return std::tanh(a);
  case operation::sigmoid:
    return 1 / (1 + std::exp(-a));
  case operation::relu_gradient:
    return b > 0 ? a : std::isnan(b) ? b : 0;
  case operation::tanh_gradient:
    return a * (1 - b * b);
  case operation::sigmoid_gradient:
    return a * b * (1 - b);
  case operation::at_least:
    return std::isnan(a) ? a : std::max(a, n.factor);
  case operation::at_most:
    return std::isnan(a) ? a : std::min(a, n.factor);
  case operation::above:
    return a > n.factor ? 1 : 0;
  case operation::maximum:
    return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
  case operation::minimum:
    return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
  case operation::greater:
    return a > b ? 1 : 0;
  case operation::squared_error:
    return n.factor * (a - b) * (a - b);
  default:
    throw std::logic_error("no reference for " + std::string(to_string(n.op)));
  }
}

values evaluate(const graph& g, const node& n, const std::vector<values>& x,
                const std::vector<table>& t, std::size_t batch) {
  const auto size = n.shape.elements(batch);
  const auto out = table_of(n.shape, batch);
  values y(size);
  switch (n.op) {
  case operation::matmul:
    return matmul(n, x[0], t[0], x[1], t[1]);
  case operation::sparse_matmul:
    return matmul(n, x[0], t[0], x[1], t[1]);
  case operation::sparse_matmul_gradient: {
    node transposed = n;
    transposed.transpose_a = true;
    return matmul(transposed, x[0], t[0], x[1], t[1]);
  }
  case operation::add_bias:
    for (std::size_t i = 0; i < size; ++i)
      y[i] = x[0][i] + x[1][i % out.columns];
    return y;
  case operation::sum:
  case operation::sum_leading:
    for (std::size_t i = 0; i < x[0].size(); ++i)
      y[n.op == operation::sum ? 0 : i % size] += x[0][i];
    return y;
  case operation::sum_last:
    for (std::size_t i = 0; i < x[0].size(); ++i)
      y[i / t[0].columns] += x[0][i];
    return y;
  case operation::broadcast:
  case operation::broadcast_leading:
    for (std::size_t i = 0; i < size; ++i)
      y[i] = x[0][i % x[0].size()];
    return y;
  case operation::broadcast_last:
    for (std::size_t i = 0; i < size; ++i)
      y[i] = x[0][i / out.columns];
    return y;
  case operation::softmax:
    return softmax(x[0], t[0]);
  case operation::softmax_cross_entropy:
  case operation::softmax_cross_entropy_gradient:
  case operation::softmax_correct:
    return classify(n, x[0], t[0], x[1]);
  case operation::binary_correct:
    for (std::size_t i = 0; i < x[0].size(); ++i)
      y[0] += (x[0][i] > 0 ? 1 : 0) == x[1][i] ? 1 : 0;
    return y;
  case operation::to_float:
    return x[0];
  case operation::dropout:
    for (std::size_t i = 0; i < size; ++i)
      y[i] = stays(n, i) ? x[0][i] / (1 - n.factor) : 0;
    return y;
  case operation::cast:
    for (std::size_t i = 0; i < size; ++i)
      y[i] = rounded(n.type, x[0][i]);
    return y;
  case operation::select:
    for (std::size_t i = 0; i < size; ++i)
      y[i] = std::isnan(x[0][i]) ? x[0][i] : x[x[0][i] > 0 ? 1 : 2][i];
    return y;
  case operation::squared_error:
    for (std::size_t i = 0; i < x[0].size(); ++i)
      y[0] += element(n, x[0][i], x[1][i]);
    return y;
  default:
    if (!is_elementwise(n.op))
      return sequence_value(g, n, x, batch);
    for (std::size_t i = 0; i < size; ++i)
      y[i] = element(n, x[0][i], x.size() > 1 ? x[1][i] : 0);
    return y;
  }
}

} // namespace

std::vector<double> reference_value(const graph& g, std::uint32_t id, const leaves& given) {
  std::vector<values> computed;
  for (std::uint32_t i = 0; i <= id; ++i) {
    const auto& n = g.at(i);
    if (n.op == operation::variable) {
      computed.push_back(given.weights[n.index]);
    } else if (n.op == operation::placeholder) {
      computed.push_back(given.feeds[n.index]);
    } else if (n.op == operation::constant) {
      auto x = n.values;
      if (x.size() == 1)
        x.assign(n.shape.elements(given.rows), x[0]);
      computed.push_back(std::move(x));
    } else {
      std::vector<values> inputs;
      std::vector<table> tables;
      for (auto input : n.inputs) {
        inputs.push_back(computed[input]);
        tables.push_back(table_of(g.at(input).shape, given.rows));
      }
      computed.push_back(evaluate(g, n, inputs, tables, given.rows));
    }
  }
  return computed[id];
}

double distance_to_kinks(const graph& g, std::uint32_t id, const leaves& given) {
  double result = HUGE_VAL;
  const auto value = [&](std::uint32_t input) { return reference_value(g, input, given); };
  for (std::uint32_t i = 0; i <= id; ++i) {
    const auto& n = g.at(i);
    switch (n.op) {
    case operation::relu:
    case operation::leaky_relu:
    case operation::absolute:
    case operation::sign:
    case operation::select:
      for (double x : value(n.inputs[0]))
        result = std::min(result, std::fabs(x));
      break;
    case operation::round:
      for (double x : value(n.inputs[0]))
        result = std::min(result, std::fabs(x - std::floor(x) - 0.5));
      break;
    case operation::at_least:
    case operation::at_most:
    case operation::above:
      for (double x : value(n.inputs[0]))
        result = std::min(result, std::fabs(x - n.factor));
      break;
    case operation::maximum:
    case operation::minimum:
    case operation::greater: {
      const auto a = value(n.inputs[0]);
      const auto b = value(n.inputs[1]);
      for (std::size_t k = 0; k < a.size(); ++k)
        result = std::min(result, std::fabs(a[k] - b[k]));
      break;
    }
    default:
      break;
    }
  }
  return result;
}

} // namespace troupe::test
