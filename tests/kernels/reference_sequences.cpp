// A second, simple implementation of the operations on sequences, to compare with. It follows their
// definitions in loops over all indices.

#include "tests/kernels/reference_sequences.hpp"

#include "tests/kernels/reference_images.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

namespace troupe::test {

namespace {

using values = std::vector<double>;
using index = std::vector<std::size_t>;

index extents_of(const shape& x, std::size_t batch) {
  index result;
  for (auto extent : x.extents())
    result.push_back(extent == shape::batch ? batch : static_cast<std::size_t>(extent));
  return result;
}

std::size_t offset_of(const index& extents, const index& at) {
  std::size_t result = 0;
  for (std::size_t i = 0; i < extents.size(); ++i)
    result = result * extents[i] + at[i];
  return result;
}

/// Calls f(index) for all elements of a tensor with these extents.
void each(const index& extents, const std::function<void(const index&)>& f) {
  std::size_t total = 1;
  for (auto extent : extents)
    total *= extent;
  for (std::size_t i = 0; i < total; ++i) {
    index at(extents.size());
    auto rest = i;
    for (auto axis = extents.size(); axis-- > 0; rest /= extents[axis])
      at[axis] = rest % extents[axis];
    f(at);
  }
}

/// The position of element (row, column) of a head in a tensor, which is (batch, time, columns) or
/// (batch, heads, time, width).
std::size_t place_in_head(const index& extents, const attention_operands& how,
                          const attention_operands::part& part, std::size_t sample,
                          std::size_t head, std::size_t row, std::size_t column) {
  if (extents.size() == 4)
    return ((sample * extents[1] + head) * extents[2] + row) * extents[3] + column;
  const auto first = part.column + head * static_cast<std::size_t>(how.width);
  return (sample * extents[1] + row) * extents[2] + first + column;
}

/// One head of attention, computed with full matrices by the definition.
struct attention_head {
  std::vector<values> q, k, v, shares;
  values statistics;

  attention_head(const graph& g, const node& n, const std::vector<values>& x, std::size_t first,
                 std::size_t batch, std::size_t sample, std::size_t head) {
    const auto& how = n.attention;
    const auto read = [&](const attention_operands::part& part) {
      const auto extents = extents_of(g.at(n.inputs[first + part.operand]).shape, batch);
      std::vector<values> result(extents[extents.size() - 2]);
      for (std::size_t r = 0; r < result.size(); ++r)
        for (std::size_t c = 0; c < static_cast<std::size_t>(how.width); ++c)
          result[r].push_back(
            x[first + part.operand][place_in_head(extents, how, part, sample, head, r, c)]);
      return result;
    };
    q = read(how.queries);
    k = read(how.keys);
    v = read(how.values);
    for (std::size_t i = 0; i < q.size(); ++i) {
      values row(k.size());
      double total = 0;
      for (std::size_t j = 0; j < (how.causal ? i + 1 : k.size()); ++j) {
        for (std::size_t c = 0; c < q[i].size(); ++c)
          row[j] += n.factor * q[i][c] * k[j][c];
        row[j] = std::exp(row[j]);
        total += row[j];
      }
      for (auto& share : row)
        share /= total;
      shares.push_back(row);
      statistics.push_back(std::log(total));
    }
  }
};

values attention(const graph& g, const node& n, const std::vector<values>& x, std::size_t batch) {
  const auto to = extents_of(n.shape, batch);
  values out(n.shape.elements(batch));
  const auto heads = static_cast<std::size_t>(n.attention.heads);
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t h = 0; h < heads; ++h) {
      const attention_head one(g, n, x, 0, batch, b, h);
      for (std::size_t i = 0; i < one.q.size(); ++i) {
        if (n.op == operation::attention_statistics) {
          out[(b * heads + h) * one.q.size() + i] = one.statistics[i];
          continue;
        }
        for (std::size_t j = 0; j < one.k.size(); ++j)
          for (std::size_t c = 0; c < one.v[j].size(); ++c)
            out[place_in_head(to, n.attention, {}, b, h, i, c)] += one.shares[i][j] * one.v[j][c];
      }
    }
  return out;
}

/// The gradient of attention. Jacobian of softmax: d score = share (d share - sum of share d
/// share).
values attention_gradient(const graph& g, const node& n, const std::vector<values>& x,
                          std::size_t batch) {
  const auto& how = n.attention;
  const auto of_y = extents_of(g.at(n.inputs[1]).shape, batch);
  const auto to = extents_of(n.shape, batch);
  values out(n.shape.elements(batch));
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t h = 0; h < static_cast<std::size_t>(how.heads); ++h) {
      const attention_head one(g, n, x, 3, batch, b, h);
      for (std::size_t i = 0; i < one.q.size(); ++i) {
        const auto width = one.q[i].size();
        const auto dy = [&](std::size_t c) {
          return x[0][place_in_head(of_y, how, {}, b, h, i, c)];
        };
        const auto add = [&](const attention_operands::part& part, std::size_t row, std::size_t c,
                             double term) {
          if (part.operand == n.index)
            out[place_in_head(to, how, part, b, h, row, c)] += term;
        };
        values slopes(one.k.size());
        double mean = 0;
        for (std::size_t j = 0; j < slopes.size(); ++j) {
          for (std::size_t c = 0; c < width; ++c) {
            slopes[j] += dy(c) * one.v[j][c];
            add(how.values, j, c, one.shares[i][j] * dy(c));
          }
          mean += one.shares[i][j] * slopes[j];
        }
        for (std::size_t j = 0; j < slopes.size(); ++j)
          for (std::size_t c = 0; c < width; ++c) {
            const auto slope = one.shares[i][j] * (slopes[j] - mean) * n.factor;
            add(how.queries, i, c, slope * one.k[j][c]);
            add(how.keys, j, c, slope * one.q[i][c]);
          }
      }
    }
  return out;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// The hidden states of one sample by the equations of the cell, stored in the layout of the
/// operation.
values recur(const node& n, const values& z, const values& w, const values& b, std::size_t time,
             std::size_t hidden) {
  const std::size_t gates = n.cell == cell::rnn ? 1 : n.cell == cell::lstm ? 4 : 3;
  values h(hidden);
  values c(hidden);
  values out;
  for (std::size_t t = 0; t < time; ++t) {
    values a(gates * hidden);
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t j = 0; j < hidden; ++j)
        a[i] += w[i * hidden + j] * h[j];
    const auto in = [&](std::size_t gate, std::size_t j) {
      return z[(t * gates + gate) * hidden + j];
    };
    const auto from = [&](std::size_t gate, std::size_t j) { return a[gate * hidden + j]; };
    std::vector<values> parts;
    if (n.cell == cell::rnn) {
      for (std::size_t j = 0; j < hidden; ++j)
        h[j] = std::tanh(in(0, j) + from(0, j));
    } else if (n.cell == cell::lstm) {
      parts.assign(4, values(hidden));
      for (std::size_t j = 0; j < hidden; ++j) {
        for (std::size_t gate = 0; gate < 4; ++gate)
          parts[gate][j] = in(gate, j) + from(gate, j);
        parts[0][j] = sigmoid(parts[0][j]);
        parts[1][j] = sigmoid(parts[1][j]);
        parts[2][j] = std::tanh(parts[2][j]);
        parts[3][j] = sigmoid(parts[3][j]);
        c[j] = parts[1][j] * c[j] + parts[0][j] * parts[2][j];
        h[j] = parts[3][j] * std::tanh(c[j]);
      }
      parts.push_back(c);
    } else {
      parts.assign(4, values(hidden));
      for (std::size_t j = 0; j < hidden; ++j) {
        parts[0][j] = sigmoid(in(0, j) + from(0, j) + b[j]);
        parts[1][j] = sigmoid(in(1, j) + from(1, j) + b[hidden + j]);
        parts[3][j] = from(2, j) + b[2 * hidden + j];
        parts[2][j] = std::tanh(in(2, j) + parts[0][j] * parts[3][j]);
        h[j] = (1 - parts[1][j]) * parts[2][j] + parts[1][j] * h[j];
      }
    }
    for (auto& part : parts)
      out.insert(out.end(), part.begin(), part.end());
    out.insert(out.end(), h.begin(), h.end());
  }
  return out;
}

values recurrent(const graph& g, const node& n, const std::vector<values>& x, std::size_t batch) {
  const auto& z = g.at(n.inputs[0]).shape;
  const auto hidden = static_cast<std::size_t>(g.at(n.inputs[1]).shape.last());
  const auto per_sample = z.elements(1);
  values out;
  for (std::size_t i = 0; i < batch; ++i) {
    const auto begin = x[0].begin() + static_cast<std::ptrdiff_t>(i * per_sample);
    const auto part = recur(n, {begin, begin + static_cast<std::ptrdiff_t>(per_sample)}, x[1],
                            x.size() > 2 ? x[2] : values{}, static_cast<std::size_t>(z[1]), hidden);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

} // namespace

std::vector<double> sequence_value(const graph& g, const node& n,
                                   const std::vector<std::vector<double>>& x, std::size_t batch) {
  const auto to = extents_of(n.shape, batch);
  const auto from = extents_of(g.at(n.inputs[0]).shape, batch);
  const auto rank = to.size();
  values out(n.shape.elements(batch));
  switch (n.op) {
  case operation::transpose:
    each(to, [&](const index& at) {
      index source(rank);
      for (std::size_t i = 0; i < rank; ++i)
        source[n.axes[i]] = at[i];
      out[offset_of(to, at)] = x[0][offset_of(from, source)];
    });
    return out;
  case operation::slice:
    each(to, [&](index at) {
      const auto target = offset_of(to, at);
      at[n.axes[0]] += n.axes[1];
      out[target] = x[0][offset_of(from, at)];
    });
    return out;
  case operation::place:
    each(from, [&](index at) {
      const auto source = offset_of(from, at);
      at[n.axes[0]] += n.axes[1];
      out[offset_of(to, at)] = x[0][source];
    });
    return out;
  case operation::reverse:
    each(to, [&](index at) {
      const auto target = offset_of(to, at);
      at[n.axes[0]] = to[n.axes[0]] - 1 - at[n.axes[0]];
      out[target] = x[0][offset_of(from, at)];
    });
    return out;
  case operation::concat: {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto part = extents_of(g.at(n.inputs[i]).shape, batch);
      each(part, [&](index at) {
        const auto source = offset_of(part, at);
        at[n.axes[0]] += begin;
        out[offset_of(to, at)] = x[i][source];
      });
      begin += part[n.axes[0]];
    }
    return out;
  }
  case operation::blend:
    each(to, [&](index at) {
      const auto target = offset_of(to, at);
      const auto taps = static_cast<std::size_t>(g.at(n.inputs[1]).shape[1]);
      const auto entry = at[n.axes[0]] * taps;
      for (std::size_t k = 0; k < taps && x[1][2 * (entry + k)] >= 0; ++k) {
        at[n.axes[0]] = static_cast<std::size_t>(x[1][2 * (entry + k)]);
        out[target] += x[1][2 * (entry + k) + 1] * x[0][offset_of(from, at)];
      }
    });
    return out;
  case operation::batched_matmul: {
    const auto b = extents_of(g.at(n.inputs[1]).shape, batch);
    const auto inner = from[n.transpose_a ? rank - 2 : rank - 1];
    each(to, [&](const index& at) {
      auto left = at;
      auto right = at;
      for (std::size_t k = 0; k < inner; ++k) {
        left[rank - 2] = n.transpose_a ? k : at[rank - 2];
        left[rank - 1] = n.transpose_a ? at[rank - 2] : k;
        right[rank - 2] = n.transpose_b ? at[rank - 1] : k;
        right[rank - 1] = n.transpose_b ? k : at[rank - 1];
        out[offset_of(to, at)] += x[0][offset_of(from, left)] * x[1][offset_of(b, right)];
      }
    });
    return out;
  }
  case operation::multiply_rows:
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = x[0][i] * x[1][i % to.back()];
    return out;
  case operation::embedding:
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = x[0][static_cast<std::size_t>(x[1][i / to.back()]) * to.back() + i % to.back()];
    return out;
  case operation::embedding_gradient:
    for (std::size_t i = 0; i < x[0].size(); ++i)
      out[static_cast<std::size_t>(x[1][i / to.back()]) * to.back() + i % to.back()] += x[0][i];
    return out;
  case operation::normalize_rows:
  case operation::normalize_rows_gradient: {
    const auto& in = x.back();
    const auto size = to.back();
    const auto count = static_cast<double>(size);
    for (std::size_t r = 0; r < out.size(); r += size) {
      double mean = 0;
      double variance = 0;
      for (std::size_t j = 0; j < size; ++j)
        mean += in[r + j] / count;
      for (std::size_t j = 0; j < size; ++j)
        variance += (in[r + j] - mean) * (in[r + j] - mean) / count;
      const double deviation = std::sqrt(variance + n.factor);
      for (std::size_t j = 0; j < size; ++j)
        out[r + j] = (in[r + j] - mean) / deviation;
      if (n.op == operation::normalize_rows)
        continue;
      // Row j of the Jacobian of softmax, times dy.
      const values y(out.begin() + static_cast<std::ptrdiff_t>(r),
                     out.begin() + static_cast<std::ptrdiff_t>(r + size));
      for (std::size_t j = 0; j < size; ++j) {
        double total = 0;
        for (std::size_t i = 0; i < size; ++i)
          total += x[0][r + i] * ((i == j ? 1 : 0) - 1 / count - y[i] * y[j] / count) / deviation;
        out[r + j] = total;
      }
    }
    return out;
  }
  case operation::causal_softmax:
    each(to, [&](index at) {
      const auto target = offset_of(to, at);
      if (at[rank - 1] > at[rank - 2])
        return;
      double total = 0;
      const double own = x[0][target];
      for (std::size_t j = 0; j <= at[rank - 2]; ++j) {
        at[rank - 1] = j;
        total += std::exp(x[0][offset_of(to, at)] - own);
      }
      out[target] = 1 / total;
    });
    return out;
  case operation::attention:
  case operation::attention_statistics:
    return attention(g, n, x, batch);
  case operation::attention_gradient:
    return attention_gradient(g, n, x, batch);
  case operation::recurrent:
    return recurrent(g, n, x, batch);
  case operation::stop_gradient:
    return x[0];
  default:
    return image_value(g, n, x, batch);
  }
}

} // namespace troupe::test
