#include "kernels/graph/sequence_operations.hpp"

#include "kernels/graph/image_operations.hpp"
#include "kernels/graph/node_builder.hpp"
#include "kernels/graph/operations.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace troupe {

namespace {

/// The shape x with another extent along `axis`.
shape with_extent(const shape& x, std::size_t axis, std::int64_t extent) {
  auto extents = x.extents();
  extents.at(axis) = extent;
  return shape(std::move(extents));
}

void check_axis(operation op, expression x, std::size_t axis) {
  if (axis >= x.shape().rank() || (axis == 0 && x.shape().has_batch()))
    refuse(op,
           "axis " + std::to_string(axis) + " of " + describe(x) + " is "
             + (axis == 0 ? "the batch" : "out of range"));
}

/// The number of hidden units, from the shape of the projections z. Throws input_error if z and w
/// do not fit.
std::int64_t hidden_of(expression z, expression w, cell how) {
  const std::int64_t gates = how == cell::rnn ? 1 : how == cell::lstm ? 4 : 3;
  const auto& dims = z.shape();
  const auto hidden = dims.last() / gates;
  if (dims.rank() != 3 || !dims.has_batch() || dims.last() % gates != 0
      || w.shape() != shape{gates * hidden, hidden})
    refuse(operation::recurrent,
           describe(z) + " and " + describe(w) + " do not fit: expected (batch, time, "
             + std::to_string(gates) + " hidden) and (" + std::to_string(gates)
             + " hidden, hidden)");
  return hidden;
}

/// Appends a recurrent node, which computes all time steps. For each time step, the node stores
/// `stored` vectors of `hidden` elements. The last of these vectors is the state h. Returns h as a
/// slice of the node.
expression run(const std::vector<expression>& inputs, cell how, std::int64_t stored) {
  const auto hidden = hidden_of(inputs[0], inputs[1], how);
  auto x = make_node(operation::recurrent, with_extent(inputs[0].shape(), 2, stored * hidden));
  x.cell = how;
  const auto all = append(std::move(x), inputs);
  return slice(all, 2, (stored - 1) * hidden, stored * hidden);
}

} // namespace

// -- moving elements ----------------------------------------------------------------------------

expression transpose(expression x, const std::vector<std::size_t>& axes) {
  constexpr auto op = operation::transpose;
  check_float(op, x);
  if (axes.size() > 8)
    refuse(op, describe(x) + " has more than 8 axes");
  auto sorted = axes;
  std::ranges::sort(sorted);
  std::vector<std::size_t> all(x.shape().rank());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (sorted != all || (x.shape().has_batch() && axes[0] != 0))
    refuse(op, describe(x) + ": expected each of its axes once, with the batch first");
  std::vector<std::int64_t> extents;
  for (auto axis : axes)
    extents.push_back(x.shape()[axis]);
  auto result = make_node(op, shape(std::move(extents)));
  result.axes = axes;
  return append(std::move(result), {x});
}

expression slice(expression x, std::size_t axis, std::int64_t begin, std::int64_t end) {
  constexpr auto op = operation::slice;
  check_axis(op, x, axis);
  if (begin < 0 || end < begin || end > x.shape()[axis])
    refuse(op,
           "positions " + std::to_string(begin) + " to " + std::to_string(end) + " of axis "
             + std::to_string(axis) + " of " + describe(x) + " are out of range");
  // If x is a place(), and the slice is exactly the tensor that was placed, returns that tensor.
  // This happens in the gradient of a slice.
  const auto& n = x.node();
  if (n.op == operation::place && n.axes[0] == axis && n.axes[1] == static_cast<std::size_t>(begin)
      && x.owner().at(n.inputs[0]).shape[axis] == end - begin)
    return {x.owner(), n.inputs[0]};
  auto result = make_node(op, with_extent(x.shape(), axis, end - begin));
  result.axes = {axis, static_cast<std::size_t>(begin)};
  result.type = n.type;
  return append(std::move(result), {x});
}

expression place(expression x, std::size_t axis, std::int64_t begin, shape dims) {
  constexpr auto op = operation::place;
  check_float(op, x);
  check_axis(op, x, axis);
  const auto extent = x.shape()[axis];
  const bool fits = dims.rank() == x.shape().rank() && begin >= 0 && begin + extent <= dims[axis]
    && with_extent(dims, axis, extent) == x.shape();
  if (!fits)
    refuse(op,
           describe(x) + " at " + std::to_string(begin) + " along axis " + std::to_string(axis)
             + " does not fit into " + to_string(dims));
  auto result = make_node(op, std::move(dims));
  result.axes = {axis, static_cast<std::size_t>(begin)};
  return append(std::move(result), {x});
}

expression reverse(expression x, std::size_t axis) {
  constexpr auto op = operation::reverse;
  check_float(op, x);
  check_axis(op, x, axis);
  auto result = make_node(op, x.shape());
  result.axes = {axis};
  return append(std::move(result), {x});
}

expression concat(const std::vector<expression>& xs, std::size_t axis) {
  constexpr auto op = operation::concat;
  if (xs.empty())
    refuse(op, "expected at least one tensor");
  std::int64_t extent = 0;
  for (auto x : xs) {
    check_float(op, x);
    check_axis(op, x, axis);
    if (x.shape().rank() != xs[0].shape().rank()
        || with_extent(x.shape(), axis, 0) != with_extent(xs[0].shape(), axis, 0))
      refuse(op,
             describe(xs[0]) + " and " + describe(x) + " differ in more than axis "
               + std::to_string(axis));
    extent += x.shape()[axis];
  }
  auto result = make_node(op, with_extent(xs[0].shape(), axis, extent));
  result.axes = {axis};
  return append(std::move(result), xs);
}

// The node holds the table as a constant (n, taps, 2) of positions and weights. `taps` is the
// largest number of terms of an entry. Entries with fewer terms are filled with the position -1.
expression blend(expression x, std::size_t axis, const blend_table& table) {
  constexpr auto op = operation::blend;
  constexpr std::int64_t most = std::int64_t{1} << 24; // float32 represents integers up to this
  check_float(op, x);
  check_axis(op, x, axis);
  const auto extent = x.shape()[axis];
  if (table.empty() || extent > most)
    refuse(op,
           describe(x) + ": expected at least one entry in the table, and at most "
             + std::to_string(most) + " elements along axis " + std::to_string(axis));
  std::size_t taps = 1;
  for (const auto& terms : table)
    taps = std::max(taps, terms.size());
  std::vector<double> values;
  values.reserve(2 * taps * table.size());
  for (const auto& terms : table) {
    for (const auto& term : terms) {
      if (term.position >= static_cast<std::size_t>(extent))
        refuse(op,
               "position " + std::to_string(term.position) + " of axis " + std::to_string(axis)
                 + " of " + describe(x) + " is out of range");
      values.insert(values.end(), {static_cast<double>(term.position), term.weight});
    }
    for (auto i = terms.size(); i < taps; ++i)
      values.insert(values.end(), {-1, 0});
  }
  const auto n = static_cast<std::int64_t>(table.size());
  auto result = make_node(op, with_extent(x.shape(), axis, n));
  result.axes = {axis};
  const auto constant =
    x.owner().constant(std::move(values), {n, static_cast<std::int64_t>(taps), 2});
  return append(std::move(result), {x, constant});
}

blend_table transposed(const blend_table& table, std::size_t extent) {
  blend_table result(extent);
  for (std::size_t i = 0; i < table.size(); ++i)
    for (const auto& term : table[i])
      result.at(term.position).push_back({i, term.weight});
  return result;
}

blend_table blend_table_of(expression constant) {
  const auto& n = constant.node();
  blend_table result(static_cast<std::size_t>(n.shape[0]));
  const auto taps = static_cast<std::size_t>(n.shape[1]);
  for (std::size_t i = 0; i < result.size() * taps; ++i)
    if (const auto position = n.values.at(2 * i); position >= 0)
      result[i / taps].push_back({static_cast<std::size_t>(position), n.values.at(2 * i + 1)});
  return result;
}

expression stop_gradient(expression x) {
  check_float(operation::stop_gradient, x);
  return append(make_node(operation::stop_gradient, x.shape()), {x});
}

// -- products -----------------------------------------------------------------------------------

expression batched_matmul(expression a, expression b, bool transpose_a, bool transpose_b) {
  constexpr auto op = operation::batched_matmul;
  check_float(op, a);
  check_float(op, b);
  const auto rank = a.shape().rank();
  const auto leading = [&](expression x) {
    auto extents = x.shape().extents();
    extents.resize(rank - 2);
    return extents;
  };
  const bool batches = rank >= 3 && b.shape().rank() == rank && leading(a) == leading(b);
  if (!batches)
    refuse(op,
           describe(a) + " and " + describe(b)
             + " do not fit: expected at least three dimensions, of which all but the last two are "
               "equal");
  const auto m = a.shape()[transpose_a ? rank - 1 : rank - 2];
  const auto k = a.shape()[transpose_a ? rank - 2 : rank - 1];
  const auto n = b.shape()[transpose_b ? rank - 2 : rank - 1];
  if (k != b.shape()[transpose_b ? rank - 1 : rank - 2])
    refuse(
      op, describe(a) + " and " + describe(b) + " do not fit: the sums are over different lengths");
  auto dims = leading(a);
  dims.insert(dims.end(), {m, n});
  auto result = make_node(op, shape(std::move(dims)));
  result.transpose_a = transpose_a;
  result.transpose_b = transpose_b;
  return append(std::move(result), {a, b});
}

expression multiply_rows(expression x, expression g) {
  constexpr auto op = operation::multiply_rows;
  check_float(op, x);
  check_float(op, g);
  if (x.shape().rank() < 1 || g.shape() != shape{x.shape().last()})
    refuse(op,
           describe(x) + " and " + describe(g)
             + " do not fit: expected a factor for each element of a row");
  return append(make_node(op, x.shape()), {x, g});
}

// -- tables -------------------------------------------------------------------------------------

expression embedding(expression table, expression ids) {
  constexpr auto op = operation::embedding;
  check_float(op, table);
  if (ids.node().type != dtype::int32 || table.shape().rank() != 2 || table.shape().has_batch())
    refuse(op,
           describe(table) + " and " + describe(ids)
             + ": expected a table (entries, n) and int32 ids");
  auto dims = ids.shape().extents();
  dims.push_back(table.shape().last());
  // No operation slices or reshapes integers. Therefore, if the ids are a slice or reshape of a
  // tensor, the rows for all ids of the tensor are looked up, and then sliced or reshaped.
  if (const auto& n = ids.node(); n.op == operation::slice) {
    const auto axis = n.axes[0];
    const auto begin = static_cast<std::int64_t>(n.axes[1]);
    const auto end = begin + n.shape[axis];
    return slice(embedding(table, {ids.owner(), n.inputs[0]}), axis, begin, end);
  }
  if (const auto& n = ids.node(); n.op == operation::reshape)
    return reshape(embedding(table, {ids.owner(), n.inputs[0]}), shape(std::move(dims)));
  return append(make_node(op, shape(std::move(dims))), {table, ids});
}

expression embedding_gradient(expression dy, expression ids, std::int64_t entries) {
  constexpr auto op = operation::embedding_gradient;
  check_float(op, dy);
  auto dims = ids.shape().extents();
  dims.push_back(dy.shape().last());
  if (ids.node().type != dtype::int32 || dy.shape() != shape(std::move(dims)))
    refuse(op, describe(dy) + " and " + describe(ids) + " do not fit: expected a row per id");
  return append(make_node(op, {entries, dy.shape().last()}), {dy, ids});
}

// -- normalization and attention ----------------------------------------------------------------

expression normalize_rows(expression x, double epsilon) {
  constexpr auto op = operation::normalize_rows;
  check_float(op, x);
  if (x.shape().rank() < 2 || x.shape().last() < 1 || !(epsilon > 0))
    refuse(op, describe(x) + ": expected rows of at least one element, and an epsilon above 0");
  auto result = make_node(op, x.shape());
  result.factor = epsilon;
  return append(std::move(result), {x});
}

expression normalize_rows_gradient(expression dy, expression x, double epsilon) {
  constexpr auto op = operation::normalize_rows_gradient;
  if (dy.shape() != x.shape())
    refuse(op, describe(dy) + " and " + describe(x) + " have different shapes");
  auto result = make_node(op, x.shape());
  result.factor = epsilon;
  return append(std::move(result), {dy, x});
}

expression recurrent_gradient(expression dh, expression states, expression w, cell how) {
  const auto hidden = w.shape().last();
  const std::int64_t parts = how == cell::rnn ? 1 : 4;
  auto x = make_node(operation::recurrent_gradient, with_extent(dh.shape(), 2, parts * hidden));
  x.cell = how;
  return append(std::move(x), {dh, states, w});
}

expression layer_norm(expression x, expression gain, expression bias, double epsilon) {
  return add_bias(multiply_rows(normalize_rows(x, epsilon), gain), bias);
}

expression rms_norm(expression x, expression gain, double epsilon) {
  check_float(operation::multiply_rows, x);
  const auto dims = x.shape();
  if (dims.rank() < 2 || dims.last() < 1 || !(epsilon > 0))
    throw input_error("rms_norm: " + describe(x)
                      + ": expected rows of at least one element, and an epsilon above 0");
  const auto mean = scale(sum_last(x * x), 1 / static_cast<double>(dims.last()));
  const auto deviation = square_root(offset(mean, epsilon));
  return multiply_rows(x / broadcast_last(deviation, dims), gain);
}

expression causal_softmax(expression x) {
  constexpr auto op = operation::causal_softmax;
  check_float(op, x);
  const auto rank = x.shape().rank();
  if (rank < 3 || x.shape()[rank - 1] != x.shape()[rank - 2])
    refuse(op, describe(x) + ": expected square matrices (..., T, T)");
  return append(make_node(op, x.shape()), {x});
}

// -- recurrence ---------------------------------------------------------------------------------

expression rnn(expression z, expression w) {
  return run({z, w}, cell::rnn, 1);
}

expression lstm(expression z, expression w) {
  return run({z, w}, cell::lstm, 6); // stores i, f, g, o, c, h
}

expression gru(expression z, expression w, expression b) {
  if (b.shape() != shape{z.shape().last()})
    refuse(operation::recurrent,
           describe(z) + " and " + describe(b) + " do not fit: expected a bias per gate");
  return run({z, w, b}, cell::gru, 5); // stores r, u, n, a_n, h
}

expression gru_reset_before(expression z, expression w) {
  const auto hidden = w.shape().last();
  constexpr std::int64_t most_steps = 4096; // each step has several nodes
  if (z.shape().rank() != 3 || z.shape()[1] < 1 || z.shape()[1] > most_steps
      || z.shape().last() != 3 * hidden || w.shape() != shape{3 * hidden, hidden})
    throw input_error("gru_reset_before: " + describe(z) + " and " + describe(w)
                      + ": expected (batch, T, 3 hidden), T up to " + std::to_string(most_steps)
                      + ", and (3 hidden, hidden)");
  const auto w_gates = slice(w, 0, 0, 2 * hidden);
  const auto w_new = slice(w, 0, 2 * hidden, 3 * hidden);
  const auto time = z.shape()[1];
  const auto columns = [&](expression x, std::int64_t begin, std::int64_t end) {
    return slice(x, 1, begin * hidden, end * hidden);
  };
  expression h;
  std::vector<expression> all;
  for (std::int64_t t = 0; t < time; ++t) {
    const auto now = reshape(slice(z, 1, t, t + 1), {shape::batch, 3 * hidden});
    const bool first = t == 0; // The state is 0.
    auto gates = columns(now, 0, 2);
    gates = sigmoid(first ? gates : gates + dense(h, w_gates));
    const auto r = columns(gates, 0, 1);
    const auto u = columns(gates, 1, 2);
    const auto z_new = columns(now, 2, 3);
    const auto n = tanh(first ? z_new : z_new + dense(r * h, w_new));
    h = first ? n - u * n : n + u * (h - n);
    all.push_back(reshape(h, {shape::batch, 1, hidden}));
  }
  return all.size() == 1 ? all[0] : concat(all, 1);
}

expression recurrent_layer(expression x, const std::string& name, std::int64_t hidden, cell how) {
  if (hidden < 1 || x.shape().rank() != 3)
    throw input_error("layer \"" + name + "\": " + describe(x) + " and " + std::to_string(hidden)
                      + " units: a sequence (batch, time, features) and at least one unit were "
                        "expected");
  auto& owner = x.owner();
  const auto gates = hidden * (how == cell::rnn ? 1 : how == cell::lstm ? 4 : 3);
  const auto w_ih = owner.variable(name + ".weight_ih_l0", {gates, x.shape().last()},
                                   initializer::glorot_uniform());
  const auto w_hh =
    owner.variable(name + ".weight_hh_l0", {gates, hidden}, initializer::glorot_uniform());
  const auto b_ih = owner.variable(name + ".bias_ih_l0", {gates});
  const auto b_hh = owner.variable(name + ".bias_hh_l0", {gates});
  if (how == cell::gru)
    return gru(dense(x, w_ih, b_ih), w_hh, b_hh);
  const auto z = dense(x, w_ih, b_ih + b_hh);
  return how == cell::rnn ? rnn(z, w_hh) : lstm(z, w_hh);
}

} // namespace troupe
