#include "kernels/plan/attention_layout.hpp"

#include <cstddef>

namespace troupe {

namespace {

std::size_t axis_size(const shape& x, std::size_t axis) {
  return static_cast<std::size_t>(x[axis]);
}

/// The positions of the rows of a tensor (batch, time, columns) or (batch, heads, time, width).
/// `column` is the first column of head 0; it is used only for a tensor (batch, time, columns).
head_rows rows_of(const shape& x, std::size_t column, std::size_t width) {
  if (x.rank() == 4)
    return {0, axis_size(x, 1) * axis_size(x, 2) * width, axis_size(x, 2) * width, width};
  return {column, axis_size(x, 1) * axis_size(x, 2), width, axis_size(x, 2)};
}

} // namespace

attention_layout::attention_layout(const instruction& x, std::size_t batch)
  : batch(batch), heads(static_cast<std::size_t>(x.attention.heads)),
    width(static_cast<std::size_t>(x.attention.width)), causal(x.attention.causal),
    factor(x.factor) {
  const auto& how = x.attention;
  const auto shape_of = [&](const attention_operands::part& part) -> const shape& {
    return x.inputs[first_operand(x) + part.operand].shape;
  };
  const auto rows = [&](const attention_operands::part& part) {
    return rows_of(shape_of(part), part.column, width);
  };
  q = rows(how.queries);
  k = rows(how.keys);
  v = rows(how.values);
  const auto& of_q = shape_of(how.queries);
  const auto& of_k = shape_of(how.keys);
  queries = axis_size(of_q, of_q.rank() - 2);
  keys = axis_size(of_k, of_k.rank() - 2);
  y = of_q.rank() == 4 ? q : head_rows{0, queries * heads * width, width, heads * width};
}

} // namespace troupe
